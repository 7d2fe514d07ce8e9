// The tutorial that the launcher offers: a notebook of a few cells.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';

const FILE = 'gpu-tutorial.ipynb';

/** Open the tutorial; the first time it is written into the server's root folder. */
export async function openTutorial(
  app: JupyterFrontEnd,
  trans: TranslationBundle
): Promise<void> {
  const { contents } = app.serviceManager;
  try {
    await contents.get(FILE, { content: false });
  } catch {
    await contents.save(FILE, {
      type: 'notebook',
      format: 'json',
      content: notebook(trans)
    });
  }
  await app.commands.execute('docmanager:open', { path: FILE });
}

function notebook(trans: TranslationBundle): object {
  const text = (source: string): object => ({
    cell_type: 'markdown',
    metadata: {},
    source
  });
  const code = (source: string): object => ({
    cell_type: 'code',
    execution_count: null,
    metadata: {},
    outputs: [],
    source
  });
  const cells = [
    text(
      trans.__(
        '# A GPU in this notebook\n\nThis notebook runs without a GPU. It gets one when you request it. An idle GPU is released; your variables stay. Run the cells one after the other with Shift+Enter.'
      )
    ),
    code('import random\n\nnumbers = [random.random() for _ in range(5)]\nnumbers'),
    text(
      trans.__(
        'The next cell begins with `%%%%gpu`: it requests a GPU, waits for it, and runs there. It reads and changes the same variables.'
      )
    ),
    code('%%gpu\nnumbers.append(sum(numbers))\nprint("ran on the GPU")'),
    text(trans.__('This cell runs in your notebook again and sees the change:')),
    code('numbers'),
    text(
      trans.__(
        '`%gpu` shows where the GPU and your variables are, as the panel on the right does. Release the GPU when you are done, so that others can have it; otherwise it is released when it has been idle for a while.'
      )
    ),
    code('%gpu'),
    code('%gpu return')
  ];
  return {
    cells: cells.map((cell, number) => ({ id: `gpu-${number}`, ...cell })),
    metadata: {
      kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' }
    },
    nbformat: 4,
    nbformat_minor: 5
  };
}
