// Talks REST to the lease service.  Owns the XSRF header, idempotency keys and the form of a
// refusal.  Knows no page.
import { meta } from "./dom.js";
import { _ } from "./texts.js";

/** A refusal as RFC 9457 tells it: reason code, sentence, next step, numbers. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.title ?? problem.detail ?? _("The service answered {status}.", { status }));
    this.status = status;
    this.reason = problem.reason ?? "unknown";
    this.sentence = this.message;
    this.nextStep = problem.next_step ?? "";
    this.numbers = problem.numbers ?? {};
    /** Whether the same question may be answered in a moment: the question is not what is wrong. */
    this.passing = status === 0 || status === 429 || status >= 500;
  }
}

async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return {
      title: _("The lease service could not answer ({status}).", { status: response.status }),
      next_step: [401, 403].includes(response.status) ? _("Load this page again to log in.") : _("Try again in a moment."),
    };
  }
}

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
    throw new Refusal(0, {
      reason: "unreachable",
      title: _("The lease service does not answer."),
      next_step: _("Your notebook and a running GPU cell go on; try again in a moment."),
    });
  }
  // What is wrong is the answer there, not a refusal.
  if (path === "health" && response.status === 503 && json(response)) return response.json();
  if (!response.ok) throw new Refusal(response.status, await problemOf(response));
  if (!json(response)) return response.text();
  return response.status === 204 ? null : response.json();
}

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

export const listLeases = (state, offset, limit) =>
  get(`leases?state=${state}&offset=${offset}&limit=${limit}`);
