import { InputError, toError } from "../../errors.ts";
import type { License } from "../../protocol/documents/claims.ts";
import { peekClaims } from "../../protocol/channel/jws.ts";
import { LICENSE_MAX_BYTES } from "../../protocol/local/api.ts";

const PARTS = ["header", "claims", "signature"] as const;

/**
 * Checks a license's form, not its signature, which only the control plane it names can vouch for.
 * @returns the trimmed text and its claims.
 * @throws {InputError} `invalid-license` naming the part that is wrong.
 */
export function readLicense(raw: string): { readonly text: string; readonly claims: License } {
  const text = raw.trim();
  const size = Buffer.byteLength(text);
  if (size === 0) throw wrong("it is empty");
  if (size > LICENSE_MAX_BYTES) throw wrong(`it has ${size} bytes, and at most ${LICENSE_MAX_BYTES} are allowed`);
  if (/\s/.test(text)) throw wrong("it has white space inside: copy it as one unbroken line");
  const parts = text.split(".");
  if (parts.length !== PARTS.length) throw wrong(`it must have three parts separated by dots, and has ${parts.length}`);
  for (const [at, name] of PARTS.entries()) {
    const part = parts[at] ?? "";
    if (part === "") throw wrong(`its ${name} (part ${at + 1} of 3) is empty`);
    if (!/^[A-Za-z0-9_-]+$/.test(part))
      throw wrong(`its ${name} (part ${at + 1} of 3) holds characters other than base64url`);
  }
  try {
    return { text, claims: peekClaims("holdfast-license+jwt", text) };
  } catch (error) {
    const { message } = toError(error);
    const isHeader = error instanceof InputError && error.code === "bad-signature";
    throw wrong(
      `its ${isHeader ? "header" : "claims"} cannot be used (${message.replace(/^holdfast-license\+jwt: /, "")})`,
      error,
    );
  }
}

function wrong(what: string, cause?: unknown): InputError {
  return new InputError("invalid-license", `the license is wrong: ${what}`, cause === undefined ? {} : { cause });
}

// Room for white space around a license of the largest size.
export const FILE_MAX_BYTES = 64 * 1024;
