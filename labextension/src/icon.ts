// The panel's icon: a chip with its pins.

import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M7 6h10a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H7a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1zm1.5 2.5v7h7v-7z"/>
    <path d="M8 2h1.5v3H8zm3.2 0h1.6v3h-1.6zm3.3 0H16v3h-1.5zM8 19h1.5v3H8zm3.2 0h1.6v3h-1.6zm3.3 0H16v3h-1.5z"/>
    <path d="M2 8h3v1.5H2zm0 3.2h3v1.6H2zm0 3.3h3V16H2zM19 8h3v1.5h-3zm0 3.2h3v1.6h-3zm0 3.3h3V16h-3z"/>
  </g>
</svg>`;

export const gpuIcon = new LabIcon({ name: 'gpulease:gpu', svgstr: SVG });
