import { InputError } from "../../errors.ts";
import type { License } from "../../protocol/documents/claims.ts";
import { momentText } from "../../protocol/local/known-time.ts";
import { readLicense } from "../frame/license-input.ts";

export type Profile = "appliance" | "agent";

// 64 bytes (RFC 8032 §5.1.6) without padding.
const SIGNATURE_LENGTH = 86;

export interface LicenseRules {
  /** Lower bound of the current time, in Unix milliseconds. */
  readonly now: number;
  readonly profile?: Profile | undefined;
}

/**
 * Checks a license without its control plane and returns it.
 * @throws {InputError} `invalid-license`: incomplete, of another kind, expired, or for another profile
 */
export function judgeLicense(
  raw: string,
  { now, profile }: LicenseRules,
): { readonly text: string; readonly claims: License } {
  const read = readLicense(raw);
  const signature = read.text.split(".")[2] ?? "";
  if (signature.length < SIGNATURE_LENGTH) {
    throw wrong(`its signature (part 3 of 3) is cut short: ${signature.length} of ${SIGNATURE_LENGTH} characters`);
  }
  if (signature.length > SIGNATURE_LENGTH) {
    throw wrong(
      `its signature (part 3 of 3) has ${signature.length} characters, and an Ed25519 signature has ${SIGNATURE_LENGTH}`,
    );
  }
  const { exp, type } = read.claims;
  if (exp * 1000 <= now) throw wrong(`it expired at ${momentText(exp * 1000)}: ask for a new one`);
  if (profile !== undefined && (type === "Agent") !== (profile === "agent")) {
    throw wrong(
      `it is for ${type === "Agent" ? "an agent" : "an appliance"}, and this machine is to be ${profile === "agent" ? "an agent" : "an appliance"}`,
    );
  }
  return read;
}

function wrong(what: string): InputError {
  return new InputError("invalid-license", `the license is wrong: ${what}`);
}
