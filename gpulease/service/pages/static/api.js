// Talks REST to the lease service.  Owns the XSRF header, idempotency keys and the form of a
// refusal.  Knows no page.
import { meta } from "./dom.js";
import { find, linked, lose, signOut } from "./link.js";
import { _ } from "./texts.js";

const AGAIN = 5_000; // ms until a service that did not answer is asked again
const SIGNED_OUT = new Set(["not_logged_in", "xsrf_failed"]);

/** A refusal as RFC 9457 tells it: reason code, sentence, next step, numbers. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.title ?? problem.detail ?? _("The service answered {status}.", { status }));
    this.status = status;
    this.reason = problem.reason ?? "unknown";
    this.sentence = this.message;
    this.nextStep = problem.next_step ?? "";
    this.numbers = problem.numbers ?? {};
    /** Whether nobody answered, and whether the page belongs to a log-in that is over. */
    this.away = this.reason === "unreachable";
    this.signedOut = SIGNED_OUT.has(this.reason);
    /** Whether the same question may be answered in a moment: the question is not what is wrong. */
    this.passing = status === 0 || status === 429 || status >= 500;
  }
}

/** What a refusal says; a proxy's own page says only that nobody is behind it. */
async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    if (response.status >= 500) return AWAY;
    const title = _("The lease service could not answer ({status}).", { status: response.status });
    return [401, 403].includes(response.status) ? { reason: "not_logged_in", title } : { title };
  }
}

const AWAY = {
  reason: "unreachable",
  title: _("The lease service does not answer."),
  next_step: _("Your notebook and a running GPU cell keep running. Try again in a moment."),
};

const json = (response) => (response.headers.get("Content-Type") ?? "").includes("application/json");

async function call(method, path, body, headers = {}) {
  const options = {
    method,
    credentials: "same-origin",
    headers: { Accept: "application/json", "Accept-Language": document.documentElement.lang, "X-XSRFToken": meta("xsrf"), ...headers },
  };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(`${meta("prefix")}api/${path}`, options);
  } catch {
    throw refused(new Refusal(0, AWAY), method);
  }
  // What is wrong is the answer there, not a refusal.
  const told = path === "health" && response.status === 503 && json(response);
  if (!response.ok && !told) throw refused(new Refusal(response.status, await problemOf(response)), method);
  find("rest");
  if (!json(response)) return response.text();
  return response.status === 204 ? null : response.json();
}

/** Say at the bottom of the page what a refusal means for all of it, and nowhere else where nobody acted. */
function refused(refusal, method) {
  if (refusal.signedOut) signOut();
  else if (refusal.away) lose("rest");
  else find("rest");
  refusal.said = refusal.signedOut || (refusal.away && method === "GET");
  return refusal;
}

/** Ask whether the service answers, and this person; the line at the bottom says what it found. */
export async function look() {
  try {
    await get("classes");
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.away) setTimeout(() => linked() || look(), AGAIN);
  }
}
document.addEventListener("gl-lost", look);
document.addEventListener("visibilitychange", () => document.hidden || look());
window.addEventListener("focus", look);

/** What is no JSON, as it stands there. */
export const text = (path) => call("GET", path);
export const get = (path) => call("GET", path);
export const post = (path, body = {}, headers = {}) => call("POST", path, body, headers);
export const patch = (path, body) => call("PATCH", path, body);
export const put = (path, body) => call("PUT", path, body);
export const del = (path, body) => call("DELETE", path, body);

export function freshKey() {
  const random = new Uint8Array(16);
  crypto.getRandomValues(random); // randomUUID exists on https only
  return [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Ask for a GPU.  A second click on the same button is the same ask. */
export function ask(body) {
  return post("leases", { origin: "page", ...body }, { "Idempotency-Key": freshKey() });
}

export const upgrade = (id) => post(`leases/${encodeURIComponent(id)}/upgrade`);
export const keep = (id) => post(`leases/${encodeURIComponent(id)}/keep`);

/** Return, withdraw or (with a note) end a lease; `force`: though a cell runs or values are lost. */
export const end = (id, { note = "", force = false } = {}) => del(`leases/${encodeURIComponent(id)}`, { note, force });

/** A page of leases; `of` are further members of the query. */
export const listLeases = (state, offset, limit, of = {}) => get(`leases?${new URLSearchParams({ state, offset, limit, ...of })}`);
