"""Notebooks as they are found on the web, under ``%gpu auto``, not one character changed."""

# ruff: noqa: E501 - one cell a line

import pytest

from tests.kernel.parts import HomeKernel

pytestmark = pytest.mark.timeout(600)

#: What each cell does on the GPU is a fact of the notebook: "gpu", "home", or "" for either.
TRAINING = [
    (
        "home",
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport matplotlib.pyplot as plt\nfrom torch.utils.data import DataLoader, TensorDataset",
    ),
    (
        "gpu",
        'device = "cuda" if torch.cuda.is_available() else "cpu"\nprint(f"Using {device} device")',
    ),
    (
        "gpu",
        "torch.manual_seed(0)\nX = torch.randn(96, 4)\ny = (X[:, 0] * X[:, 1] > 0).long()\ntrain_loader = DataLoader(TensorDataset(X[:64], y[:64]), batch_size=16, shuffle=True)\ntest_loader = DataLoader(TensorDataset(X[64:], y[64:]), batch_size=16)",
    ),
    (
        "home",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))\n\n    def forward(self, x):\n        return self.layers(x)",
    ),
    ("gpu", "model = Net().to(device)\nprint(model)"),
    (
        "gpu",
        "loss_fn = nn.CrossEntropyLoss()\noptimizer = torch.optim.Adam(model.parameters(), lr=1e-2)",
    ),
    (
        "home",
        "def train(dataloader, model, loss_fn, optimizer):\n    model.train()\n    for X, y in dataloader:\n        X, y = X.to(device), y.to(device)\n        loss = loss_fn(model(X), y)\n        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n    return loss.item()\n\ndef test(dataloader, model):\n    model.eval()\n    correct = 0\n    with torch.no_grad():\n        for X, y in dataloader:\n            X, y = X.to(device), y.to(device)\n            correct += (model(X).argmax(1) == y).sum().item()\n    return correct / len(dataloader.dataset)",
    ),
    (
        "gpu",
        "history = []\nfor epoch in range(4):\n    history.append(train(train_loader, model, loss_fn, optimizer))\n    print(f'epoch {epoch}: loss {history[-1]:.6f}')",
    ),
    ("home", "plt.plot(history)\nplt.title('loss')\nplt.show()"),
    ("gpu", "print(f'Accuracy: {100 * test(test_loader, model):.1f}%')"),
    ("home", "print(history[-1], len(history))"),
    ("home", "sum(p.numel() for p in model.parameters() if p.requires_grad)"),
    ("gpu", "history.append(train(train_loader, model, loss_fn, optimizer))\nhistory[-1]"),
    (
        "gpu",
        "torch.save(model.state_dict(), 'model.pth')\nmodel.load_state_dict(torch.load('model.pth', weights_only=True))",
    ),
    (
        "gpu",
        "model.eval()\nx = X[0].unsqueeze(0)\nwith torch.no_grad():\n    pred = model(x.to(device))\npred.argmax(1)",
    ),
]
CONVOLUTION = [
    (
        "home",
        "import numpy as np\nimport pandas as pd\nimport torch\nfrom torch import nn, optim\nfrom torch.utils.data import Dataset, DataLoader, random_split\nfrom tqdm.auto import tqdm",
    ),
    ("home", "torch.manual_seed(42)\nnp.random.seed(42)"),
    ("gpu", "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\ndevice"),
    (
        "home",
        "class Bars(Dataset):\n    def __init__(self, n):\n        self.images = np.random.rand(n, 1, 8, 8).astype('float32')\n        self.labels = np.random.randint(0, 2, n)\n        self.images[self.labels == 1, :, 3] += 1\n\n    def __len__(self):\n        return len(self.labels)\n\n    def __getitem__(self, i):\n        return torch.from_numpy(self.images[i]), int(self.labels[i])",
    ),
    ("", "data = Bars(60)\nlen(data), data[0][0].shape"),
    (
        "gpu",
        "train_set, test_set = random_split(data, [40, 20], generator=torch.Generator().manual_seed(0))\nloaders = {'train': DataLoader(train_set, 10, shuffle=True), 'test': DataLoader(test_set, 10)}",
    ),
    (
        "gpu",
        "model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)).to(device)\ncriterion = nn.CrossEntropyLoss()\noptimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\nscheduler = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)",
    ),
    (
        "gpu",
        "rows = []\nfor epoch in range(3):\n    for phase in ('train', 'test'):\n        model.train(phase == 'train')\n        total = 0.0\n        for xb, yb in loaders[phase]:\n            with torch.set_grad_enabled(phase == 'train'):\n                loss = criterion(model(xb.to(device)), yb.to(device))\n                if phase == 'train':\n                    optimizer.zero_grad()\n                    loss.backward()\n                    optimizer.step()\n            total += loss.item()\n        rows.append({'epoch': epoch, 'phase': phase, 'loss': round(total, 5)})\n    scheduler.step()",
    ),
    ("home", "df = pd.DataFrame(rows)\ndf.pivot(index='epoch', columns='phase', values='loss')"),
    ("home", "print(f'final loss {loss.item():.5f}')"),
    ("home", "scheduler.get_last_lr()"),
    ("", "weights = model[0].weight.detach().cpu().numpy()\nweights.mean().round(5)"),
]
SKLEARN = [
    (
        "home",
        "import numpy as np\nfrom sklearn.datasets import load_iris\nfrom sklearn.linear_model import LogisticRegression\nfrom sklearn.model_selection import train_test_split, cross_val_score\nfrom sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler",
    ),
    (
        "home",
        "X, y = load_iris(return_X_y=True)\nX_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)",
    ),
    (
        "home",
        "clf = make_pipeline(StandardScaler(), LogisticRegression())\nclf.fit(X_train, y_train)\nprint(clf.score(X_test, y_test))",
    ),
    ("home", "cross_val_score(clf, X, y, cv=3)"),
    (
        "home",
        "for name, n in zip(*np.unique(clf.predict(X_test), return_counts=True)):\n    print(name, n)",
    ),
]
TRANSFORMERS = [
    (
        "home",
        "import torch\nfrom transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, pipeline",
    ),
    ("gpu", "device = 0 if torch.cuda.is_available() else -1"),
    (
        "home",
        "words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'good', 'bad', 'film', 'a']\nwith open('vocab.txt', 'w') as f:\n    f.write('\\n'.join(words))",
    ),
    (
        "gpu",
        "torch.manual_seed(0)\ntokenizer = BertTokenizerFast('vocab.txt')\nconfig = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)\nmodel = BertForSequenceClassification(config).eval()",
    ),
    (
        "gpu",
        "classifier = pipeline('text-classification', model=model, tokenizer=tokenizer, device=device)",
    ),
    (
        "gpu",
        "results = classifier(['a good film', 'a bad film'])\nfor r in results:\n    print(r['label'], round(r['score'], 5))",
    ),
    ("home", "print(len(results), results[0]['label'])"),
    (
        "gpu",
        "inputs = tokenizer('a good film', return_tensors='pt')\nwith torch.no_grad():\n    logits = model(**inputs).logits\nlogits",
    ),
]
NOTEBOOKS = {
    "training": TRAINING, "convolution": CONVOLUTION, "sklearn": SKLEARN,
    "transformers": TRANSFORMERS,
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A plain kernel, and one with a companion and ``%gpu auto``."""
    made = [HomeKernel(tmp_path_factory.mktemp(name)) for name in ("plain", "auto")]
    try:
        made[1].connect()
        yield made
    finally:
        for kernel in made:
            kernel.stop()


def seen(cell):
    """Return what a person sees of a cell, but for gpulease's own line."""
    shown = [m["content"]["data"] for m in cell.messages if m["msg_type"] == "display_data"]
    pictures = sum("image/png" in data for data in shown)
    return cell.error, cell.text(), cell.result, pictures


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_from_the_web(kernels, name):
    plain, auto = kernels
    for kernel in kernels:
        kernel.run("%reset -f")
        kernel.run("%matplotlib inline")
    auto.run("%gpu auto")
    for where, source in NOTEBOOKS[name]:
        expected, cell = plain.run(source, seconds=300), auto.run(source, seconds=300)
        assert seen(cell) == seen(expected), (source, cell.traceback)
        said = "gpu" if "Ran on the GPU: " in cell.shown() else "home"
        assert where in ("", said), (source, cell.shown())
    auto.run("%gpu off")
