// What may stand at a place of a YAML document, by its JSON Schema.  Pure.
//
// The place is known by indentation, and within braces by the keys before them on the same line.

const KEY = /^(\s*)(?:- )?([\w.-]+)\s*:/;

/** The schema of the mapping in which `line` (its text up to the cursor) stands, `null` for none. */
export function schemaAt(schema, above, indent) {
  const path = [];
  let least = indent;
  for (const text of above.toReversed()) {
    const found = text.match(KEY);
    if (!found || found[1].length >= least || /^\s*#/.test(text)) continue;
    least = found[1].length;
    path.unshift(found[2]);
    if (!least) break;
  }
  return path.reduce((at, key) => below(at, key), schema);
}

function below(schema, key) {
  if (!schema) return null;
  const more = schema.additionalProperties;
  return schema.properties?.[key] ?? (typeof more === "object" ? more : null);
}

/** Keys that stand already beside the cursor's line, which is the last of `before`. */
function present(before, after, indent) {
  const found = new Set();
  const take = (lines) => {
    for (const text of lines) {
      const key = text.match(KEY);
      if (!key) continue;
      if (key[1].length < indent) break;
      if (key[1].length === indent) found.add(key[2]);
    }
  };
  take(before.toReversed());
  take(after);
  return found;
}

/** Where the cursor is in braces: the keys that lead there, those beside it, and what is typed; else `null`. */
function inBraces(text) {
  const head = text.match(/^(\s*)(?:- )?([\w.-]+)\s*:\s*(?=\{)/);
  if (!head) return null;
  const levels = [];
  let part = head[2];
  for (const sign of text.slice(head[0].length)) {
    if (sign === "{") {
      levels.push({ key: part.split(":")[0].trim(), taken: new Set() });
      part = "";
    } else if (sign === "}" || sign === ",") {
      if (sign === "}") levels.pop();
      part = "";
    } else {
      if (sign === ":") levels.at(-1)?.taken.add(part.trim());
      part += sign;
    }
  }
  if (!levels.length || /["'#]/.test(text)) return null;
  return { indent: head[1].length, path: levels.map(({ key }) => key), taken: levels.at(-1).taken, part };
}

function completeInBraces(context, schema, above, { indent, path, taken, part }) {
  const at = path.reduce(below, schemaAt(schema, above, indent));
  const value = part.match(/^\s*([\w.-]+)\s*:\s+(\S*)$/);
  if (value) return values(below(at, value[1]), context.pos - value[2].length);
  const key = part.match(/^\s*([\w-]*)$/);
  return key && (key[1] || context.explicit) ? keys(at, taken, context.pos - key[1].length) : null;
}

/** Those of a mapping's keys that do not stand there yet. */
function keys(at, taken, from) {
  if (!at?.properties) return null;
  const options = Object.entries(at.properties)
    .filter(([name]) => !taken.has(name))
    .map(([name, of]) => option(name, of, `${name}: `));
  return { from, options, validFor: /^[\w-]*$/ };
}

const option = (label, schema, apply) => ({ label, apply, type: "property", detail: schema.type === "object" ? "…" : "", info: schema.description });

/** CodeMirror's completion source. */
export function completion(context, schema) {
  const { doc } = context.state;
  const line = doc.lineAt(context.pos);
  const text = line.text.slice(0, context.pos - line.from);
  const lines = doc.toString().split("\n");
  const [above, after] = [lines.slice(0, line.number - 1), lines.slice(line.number)];
  const braces = inBraces(text);
  if (braces) return completeInBraces(context, schema, above, braces);
  const value = text.match(/^(\s*)([\w.-]+)\s*:\s+(\S*)$/);
  if (value) return values(below(schemaAt(schema, above, value[1].length), value[2]), context.pos - value[3].length);
  const key = text.match(/^(\s*)([\w-]*)$/);
  if (!key || (!key[2] && !context.explicit)) return null;
  return keys(schemaAt(schema, above, key[1].length), present(above, after, key[1].length), context.pos - key[2].length);
}

function values(schema, from) {
  const known = schema?.enum ?? (schema?.type === "boolean" ? [true, false] : []);
  if (!known.length) return null;
  return { from, options: known.map((each) => ({ label: String(each), type: "enum", info: schema.description })), validFor: /^\S*$/ };
}
