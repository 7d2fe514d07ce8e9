"use strict";(self.rspackChunkgpulease=self.rspackChunkgpulease||[]).push([[266],{32(e,o,a){var t=a(30),r=a.n(t),n=a(31),l=(a.n(n))()(r());l.push([e.id,`/* Lab's own variables only: both themes, and those that a site adds. */

.gpulease-status {
  display: flex;
}

.gpulease-status-item {
  display: flex;
  align-items: center;
  gap: 5px;
  border: 0;
  padding: 0 6px;
  background: none;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 22px;
  white-space: nowrap;
  cursor: pointer;
}

.gpulease-status-item:hover {
  background: var(--jp-layout-color3);
}

.gpulease-status-item:focus-visible {
  outline: 1px solid var(--jp-brand-color1);
  outline-offset: -1px;
}

.gpulease-dot {
  width: 8px;
  height: 8px;
  border-radius: 50%;
  border: 1px solid var(--jp-ui-font-color2);
  box-sizing: border-box;
}

.gpulease-waiting .gpulease-dot {
  border-color: var(--jp-info-color1);
  background: var(--jp-info-color1);
}

.gpulease-good .gpulease-dot {
  border-color: var(--jp-success-color1);
  background: var(--jp-success-color1);
}

.gpulease-urgent .gpulease-dot {
  border-color: var(--jp-warn-color1);
  background: var(--jp-warn-color1);
}

.gpulease-status-item.gpulease-urgent {
  font-weight: 600;
}

.gpulease-spark polyline {
  fill: none;
  stroke: var(--jp-success-color1);
  stroke-width: 1.5;
}

.gpulease-spark line {
  stroke: var(--jp-border-color1);
}

.gpulease-use {
  color: var(--jp-ui-font-color2);
}

.gpulease-bar {
  width: 40px;
  height: 8px;
  accent-color: var(--jp-success-color1);
}

.gpulease-unseen {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}

/* The notebook's toolbar */

.gpulease-button {
  display: flex;
  height: 24px;
  border-radius: var(--jp-border-radius);
}

.gpulease-button button {
  display: flex;
  align-items: center;
  gap: 6px;
  border: 0;
  padding: 0 6px;
  background: none;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  white-space: nowrap;
  cursor: pointer;
}

.gpulease-button button:disabled {
  color: var(--jp-ui-font-color3);
  cursor: default;
}

.gpulease-button-text {
  max-width: 160px; /* the toolbar measures its items once */
  overflow: hidden;
  text-overflow: ellipsis;
}

.gpulease-button .gpulease-button-menu {
  padding: 0 2px;
}

.gpulease-button button:hover:enabled {
  background: var(--jp-layout-color2);
}

.gpulease-button button:focus-visible,
.gpulease-mark:focus-visible,
.gpulease-table button:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.gpulease-button.gpulease-urgent {
  background: var(--jp-warn-color3);
}

.gpulease-button.gpulease-urgent button {
  color: #000;
  font-weight: 600;
}

/* Beside a cell's number */

.jp-InputArea {
  position: relative;
}

.gpulease-mark {
  position: absolute;
  z-index: 1;
  top: 6px;
  left: 0;
  width: 16px;
  height: 16px;
  border: 0;
  padding: 0;
  background: none;
  cursor: help;
}

.gpulease-mark svg {
  width: 14px;
  height: 14px;
}

.gpulease-mark svg .jp-icon3[fill] {
  fill: var(--jp-success-color1);
}

/* The side panel */

.gpulease-panel {
  overflow: auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
}

.gpulease-panel-content section {
  padding: 8px 12px;
  border-bottom: 1px solid var(--jp-border-color2);
}

.gpulease-panel h3 {
  display: flex;
  align-items: center;
  gap: 6px;
  margin: 4px 0;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.gpulease-panel p,
.gpulease-panel ul,
.gpulease-panel dl {
  margin: 4px 0;
  padding: 0;
  line-height: 1.4;
}

.gpulease-panel a {
  color: var(--jp-content-link-color, var(--jp-brand-color1));
  text-decoration: underline;
}

.gpulease-panel .gpulease-links {
  display: flex;
  flex-wrap: wrap;
  gap: 4px 16px;
  list-style: none;
}

.gpulease-quiet {
  color: var(--jp-ui-font-color2);
}

.gpulease-panel dl > div,
.gpulease-offer li {
  display: flex;
  flex-wrap: wrap;
  justify-content: space-between;
  gap: 0 8px;
  padding: 1px 0;
}

.gpulease-panel dd {
  margin: 0 0 0 auto;
  font-variant-numeric: tabular-nums;
  text-align: end;
  white-space: nowrap;
}

.gpulease-panel ul {
  list-style: none;
}

.gpulease-past li {
  padding: 2px 0;
}

.gpulease-actions {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  margin: 6px 0;
}

/* One below the other: in a narrow panel, or in a longer language, one of them would wrap. */
.gpulease-cells {
  display: flex;
  flex-direction: column;
  gap: 2px;
  margin: 6px 0;
  border: 0;
  padding: 0;
}

.gpulease-cells legend {
  padding: 0;
  color: var(--jp-ui-font-color2);
}

.gpulease-check {
  display: flex;
  align-items: center;
  gap: 4px;
}

.gpulease-check input {
  margin: 0;
}

.gpulease-table {
  width: 100%;
  border-collapse: collapse;
}

.gpulease-table th,
.gpulease-table td {
  padding: 2px 4px;
  text-align: left;
  font-weight: normal;
  overflow-wrap: break-word; /* a column is as wide as its longest word */
}

.gpulease-table tbody th {
  overflow-wrap: anywhere; /* a variable's name may be long */
  font-family: var(--jp-code-font-family);
}

.gpulease-table thead th {
  border-bottom: 1px solid var(--jp-border-color1);
}

.gpulease-table thead button {
  border: 0;
  padding: 0;
  background: none;
  color: inherit;
  font: inherit;
  font-weight: 600;
  cursor: pointer;
}

.gpulease-table .gpulease-number {
  text-align: right;
  white-space: nowrap;
}

.gpulease-why td {
  padding-left: 12px;
  color: var(--jp-ui-font-color2);
}

.gpulease-blocked th {
  color: var(--jp-warn-color0);
}

/* The tour */

.gpulease-tour {
  position: fixed;
  z-index: 10001;
  width: 300px;
  padding: 12px;
  border: 1px solid var(--jp-brand-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  box-shadow: var(--jp-elevation-z8);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.4;
}

.gpulease-tour p {
  margin: 0 0 8px;
}

.gpulease-tour .gpulease-actions {
  align-items: center;
  margin: 0;
}

.gpulease-tour .gpulease-actions span {
  flex: 1;
}

/* What a step of the tour is about */
.gpulease-tour-target {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 2px;
}

/* Lab's buttons are one line high; a longer language needs more. */
.gpulease-panel button.jp-mod-styled {
  height: auto;
  min-height: var(--jp-private-dialog-button-height, 32px);
  letter-spacing: normal; /* a narrow panel has no room for Lab's */
  line-height: 1.3;
  padding: 6px 8px;
  white-space: normal;
}
`,""]),a.d(o,{},{A:l})},29(e,o,a){var t=a(30),r=a.n(t),n=a(31),l=a.n(n),p=a(32),s=l()(r());s.i(p.A),s.push([e.id,`
`,""]),a.d(o,{},{A:s})},31(e){e.exports=function(e){var o=[];return o.toString=function(){return this.map(function(o){var a="",t=void 0!==o[5];return o[4]&&(a+="@supports (".concat(o[4],") {")),o[2]&&(a+="@media ".concat(o[2]," {")),t&&(a+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),a+=e(o),t&&(a+="}"),o[2]&&(a+="}"),o[4]&&(a+="}"),a}).join("")},o.i=function(e,a,t,r,n){"string"==typeof e&&(e=[[null,e,void 0]]);var l={};if(t)for(var p=0;p<this.length;p++){var s=this[p][0];null!=s&&(l[s]=!0)}for(var i=0;i<e.length;i++){var u=[].concat(e[i]);t&&l[u[0]]||(void 0!==n&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=n),a&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=a),r&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=r):u[4]="".concat(r)),o.push(u))}},o}},30(e){e.exports=function(e){return e[1]}},22(e,o,a){a.r(o);var t=a(23),r=a.n(t),n=a(24),l=a.n(n),p=a(25),s=a.n(p),i=a(26),u=a.n(i),c=a(27),d=a.n(c),g=a(28),f=a.n(g),h=a(29),b={};b.styleTagTransform=f(),b.setAttributes=u(),b.insert=s().bind(null,"head"),b.domAPI=l(),b.insertStyleElement=d(),r()(h.A,b);let v=h.A&&h.A.locals?h.A.locals:void 0;a.d(o,{},{default:v})},23(e){var o=[];function a(e){for(var a=-1,t=0;t<o.length;t++)if(o[t].identifier===e){a=t;break}return a}function t(e,t){for(var r={},n=[],l=0;l<e.length;l++){var p=e[l],s=t.base?p[0]+t.base:p[0],i=r[s]||0,u="".concat(s," ").concat(i);r[s]=i+1;var c=a(u),d={css:p[1],media:p[2],sourceMap:p[3],supports:p[4],layer:p[5]};if(-1!==c)o[c].references++,o[c].updater(d);else{var g=function(e,o){var a=o.domAPI(o);return a.update(e),function(o){o?(o.css!==e.css||o.media!==e.media||o.sourceMap!==e.sourceMap||o.supports!==e.supports||o.layer!==e.layer)&&a.update(e=o):a.remove()}}(d,t);t.byIndex=l,o.splice(l,0,{identifier:u,updater:g,references:1})}n.push(u)}return n}e.exports=function(e,r){var n=t(e=e||[],r=r||{});return function(e){e=e||[];for(var l=0;l<n.length;l++){var p=a(n[l]);o[p].references--}for(var s=t(e,r),i=0;i<n.length;i++){var u=a(n[i]);0===o[u].references&&(o[u].updater(),o.splice(u,1))}n=s}}},25(e){var o={};e.exports=function(e,a){var t=function(e){if(void 0===o[e]){var a=document.querySelector(e);if(window.HTMLIFrameElement&&a instanceof window.HTMLIFrameElement)try{a=a.contentDocument.head}catch(e){a=null}o[e]=a}return o[e]}(e);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(a)}},27(e){e.exports=function(e){var o=document.createElement("style");return e.setAttributes(o,e.attributes),e.insert(o,e.options),o}},26(e,o,a){e.exports=function(e){var o=a.nc;o&&e.setAttribute("nonce",o)}},24(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=e.insertStyleElement(e);return{update:function(a){var t,r,n;t="",a.supports&&(t+="@supports (".concat(a.supports,") {")),a.media&&(t+="@media ".concat(a.media," {")),(r=void 0!==a.layer)&&(t+="@layer".concat(a.layer.length>0?" ".concat(a.layer):""," {")),t+=a.css,r&&(t+="}"),a.media&&(t+="}"),a.supports&&(t+="}"),(n=a.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),e.styleTagTransform(t,o,e.options)},remove:function(){var e;null===(e=o).parentNode||e.parentNode.removeChild(e)}}}},28(e){e.exports=function(e,o){if(o.styleSheet)o.styleSheet.cssText=e;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(e))}}}}]);