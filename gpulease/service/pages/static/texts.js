// What people read, in their language.  The texts stand here in English; the page brings the others
// (`gpuleaseTexts`, from the service's catalogues).  `{name}` is filled in.

const root = document.documentElement;
const others = globalThis.gpuleaseTexts ?? {};
const plural = new Intl.PluralRules(root.lang);

/** The language with the reader's own region, for numbers, dates and times. */
export const locale = navigator.languages.find((each) => each.split("-")[0] === root.lang) ?? root.lang;

const fill = (text, values) => text.replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);

/** A text in the reader's language. */
export const _ = (text, values = {}) => fill(others[text]?.[0] ?? text, values);

/** One of two texts, by the number `n`, which both may name. */
export function _n(one, many, n, values = {}) {
  const forms = others[one] ?? [one, many];
  return fill(plural.select(n) === "one" ? forms[0] : forms.at(-1), { n: n.toLocaleString(locale), ...values });
}

/** A text with elements in its places, as children for `h`. */
export const _h = (text, values) => (others[text]?.[0] ?? text).split(/\{(\w+)\}/).map((part, index) => (index % 2 ? values[part] : part));
