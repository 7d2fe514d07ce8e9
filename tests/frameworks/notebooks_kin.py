"""Notebooks of what is built on torch: transformers, lightning, torchvision and others."""

# ruff: noqa: E501 - one cell a line

from tests.frameworks.notebooks import HEAD, NET

NOTEBOOKS = {
    "transformers": [
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'\nimport torch, transformers as tf\ntorch.manual_seed(0)\nseen=[]\nconfig = tf.GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0); model = tf.GPT2LMHeadModel(config); ids = torch.randint(0, 40, (4, 10))",
        "opt = torch.optim.AdamW(model.parameters(), 1e-2); sched = tf.get_linear_schedule_with_warmup(opt, 1, 5); model.train()\nout = model(input_ids=ids, labels=ids); out.loss.backward(); opt.step(); sched.step(); opt.zero_grad(); seen.append(out.loss.item())",
        "out = model(input_ids=ids, labels=ids); out.loss.backward(); opt.step(); sched.step(); opt.zero_grad(); seen.append((out.loss.item(), tuple(out.logits.shape), type(out).__name__, sched.get_last_lr(), model.lm_head.weight is model.transformer.wte.weight))",
        "model.eval(); seen.append(model.generate(ids[:1, :3], max_new_tokens=5, do_sample=True, pad_token_id=0).tolist())",
        "seen.append((model.generate(ids[:1, :3], max_new_tokens=5, do_sample=False, pad_token_id=0).tolist(), model.config is config, out.loss.item(), model.num_parameters()))",
    ],
    "tokenizer": [
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'\nimport transformers as tf, tokenizers as tk\nseen=[]\nraw = tk.Tokenizer(tk.models.WordLevel({'[UNK]': 0, 'a': 1, 'b': 2, '[PAD]': 3}, unk_token='[UNK]')); raw.pre_tokenizer = tk.pre_tokenizers.Whitespace()\ntok = tf.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token='[UNK]', pad_token='[PAD]')",
        "enc = tok(['a b', 'b c a'], padding=True, return_tensors='pt'); seen.append(enc['input_ids'].tolist())",
        "seen.append((enc['input_ids'].tolist(), type(enc).__name__, tok.decode([1, 2]), enc['attention_mask'].tolist())); tok.add_tokens(['c'])",
        "seen.append((tok('c a')['input_ids'], len(tok), raw.get_vocab_size())); cfg = tf.GPT2Config(n_layer=1); cfg.n_layer = 3",
        "seen.append((tok('c')['input_ids'], cfg.n_layer, tok.pad_token_id))",
    ],
    "trainer": [
        "import os, tempfile; os.environ['HF_HUB_OFFLINE'] = '1'\nimport torch, transformers as tf\ntorch.manual_seed(0)\nseen=[]\nmodel = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)); data = [{'input_ids': torch.arange(i, i + 6), 'labels': torch.arange(i, i + 6)} for i in range(8)]; where = tempfile.mkdtemp()",
        "args = tf.TrainingArguments(where, max_steps=2, per_device_train_batch_size=4, report_to=[], save_strategy='no', logging_steps=1, use_cpu=True, disable_tqdm=True)\nclass Note(tf.TrainerCallback):\n    def on_step_end(s, args, state, control, **k): steps.append(state.global_step)\nsteps = []\ntrainer = tf.Trainer(model=model, args=args, train_dataset=data, callbacks=[Note()])",
        "r = trainer.train(); seen.append((r.global_step, r.training_loss, steps))",
        "seen.append((trainer.state.global_step, [h.get('loss') for h in trainer.state.log_history], trainer.model is model, steps, model.transformer.wte.weight.sum().item()))",
        "r = trainer.train(); seen.append((r.training_loss, steps)); seen.append(model.transformer.wte.weight.sum().item())",
    ],
    "lightning": [
        "import torch, torch.nn as nn, torch.nn.functional as F, lightning as L, logging\nlogging.getLogger('lightning.pytorch').setLevel(logging.ERROR)\nL.seed_everything(0, verbose=False)\nseen=[]\nX = torch.randn(32, 8); y = (X.sum(1) > 0).long()\nclass Lit(L.LightningModule):\n    def __init__(self, lr=.1):\n        super().__init__(); self.save_hyperparameters(); self.net = nn.Linear(8, 2); self.losses = []\n    def training_step(self, batch, i):\n        a, b = batch; l = F.cross_entropy(self.net(a), b); self.log('l', l); self.losses.append(l.item()); return l\n    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)\nlit = Lit(.2); dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), 16, shuffle=True)",
        "trainer = L.Trainer(max_epochs=2, accelerator='cpu', devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)",
        "trainer.fit(lit, dl); seen.append((lit.losses, trainer.callback_metrics['l'].item()))",
        "seen.append((lit.losses, trainer.current_epoch, trainer.callback_metrics['l'].item(), lit.hparams.lr, lit.net.weight.tolist(), trainer.lightning_module is lit, lit.trainer is trainer))",
        "trainer.fit_loop.max_epochs = 3; trainer.fit(lit, dl); seen.append((len(lit.losses), trainer.global_step))",
        "seen.append((lit.losses, lit.net.weight.tolist(), [type(o).__name__ for o in trainer.optimizers]))",
    ],
    "torchmetrics": [
        "import torch, torchmetrics as tm\nseen=[]\nacc = tm.Accuracy('binary'); col = tm.MetricCollection([tm.MeanMetric(), tm.MaxMetric()])",
        "acc(torch.tensor([1, 0, 1]), torch.tensor([1, 1, 1])); col.update(torch.arange(3.))",
        "acc.update(torch.tensor([1]), torch.tensor([1])); seen.append((acc.compute().item(), {k: v.item() for k, v in col.compute().items()}))",
        "col.update(7.); seen.append((acc.compute().item(), {k: v.item() for k, v in col.compute().items()})); acc.reset()",
        "seen.append(len(col))",
    ],
    "torchvision": [
        "import torch, torchvision, torchvision.transforms.v2 as T\nfrom torchvision import tv_tensors\ntorch.manual_seed(0)\nseen=[]\nm = torchvision.models.resnet18(num_classes=3); tr = T.Compose([T.RandomHorizontalFlip(), T.Normalize([.5]*3, [.5]*3)]); im = tv_tensors.Image(torch.rand(3, 32, 32))",
        "x = tr(im)[None].as_subclass(torch.Tensor); out = m(x.repeat(2, 1, 1, 1)); out.sum().backward(); seen.append(out.tolist())",
        "x = tr(im); seen.append((type(im).__name__, x.sum().item(), m.fc.weight.grad.sum().item(), m.layer1[0].bn1.running_mean.sum().item()))",
        "m.eval(); seen.append(m(x[None].as_subclass(torch.Tensor)).tolist())",
    ],
    "accelerate": [
        HEAD+NET,
        "import accelerate; acc = accelerate.Accelerator(cpu=True); opt = torch.optim.SGD(model.parameters(), lr=.1); dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), 8)\nmodel, opt, dl = acc.prepare(model, opt, dl)",
        "for a, b in dl:\n    opt.zero_grad(); loss = F.cross_entropy(model(a), b); acc.backward(loss); opt.step()\nseen.append(loss.item())",
        "for a, b in dl:\n    opt.zero_grad(); loss = F.cross_entropy(model(a), b); acc.backward(loss); opt.step()\nseen.append((loss.item(), [p.tolist() for p in model.parameters()]))",
    ],
}  # fmt: skip
