import { InputError } from "../../errors.ts";
import { shownUrl } from "../../protocol/triggers/data-store.ts";

/** Redirect statuses for a GET (RFC 9110 §15.4). */
export const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * Returns the target of a redirect: http or https, never from https to http, and without a user.
 * @throws {InputError} `bad-redirect`
 */
export function redirectTarget(from: URL, location: string | undefined): URL {
  const bad = (why: string): InputError => new InputError("bad-redirect", `${shownUrl(from.href)} redirects ${why}`);
  if (location === undefined || !URL.canParse(location, from)) throw bad("to nowhere");
  const to = new URL(location, from);
  if (to.protocol !== "http:" && to.protocol !== "https:") throw bad("to a scheme other than http and https");
  if (from.protocol === "https:" && to.protocol === "http:") throw bad("from https to http");
  if (to.username !== "" || to.password !== "") throw bad("to an address with a user name or a password");
  to.hash = "";
  return to;
}
