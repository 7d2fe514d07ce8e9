// Bundles each file of src/ into DIR (the first argument), with the licences of what is inside.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const target = process.argv[2];
const { metafile } = await build({
  entryPoints: ["src/calendar.js", "src/chart.js", "src/editor.js"],
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  metafile: true,
});

// What of a package is in the bundle is told under that package's licence.
const inside = Object.values(metafile.outputs).flatMap(({ inputs }) =>
  Object.entries(inputs).filter(([, { bytesInOutput }]) => bytesInOutput).map(([path]) => path),
);
// "node_modules/@a/b/dist/c.js" is of the package "@a/b".
const nameOf = (path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1];
const packages = [...new Set(inside.map(nameOf).filter(Boolean))].sort();

function licence(name) {
  const folder = join("node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const own = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  // Some publish no licence file beside the name of the licence: it is kept here.
  const path = own ? join(folder, own) : join("licences", `${name.replaceAll("/", "-")}.txt`);
  return `${name} ${version} (${license})\n\n${readFileSync(path, "utf8").trim()}\n`;
}

writeFileSync(join(target, "LICENSES.txt"), packages.map(licence).join(`\n${"-".repeat(72)}\n\n`));
