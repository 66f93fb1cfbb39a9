import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import {
  ActivationAnswer,
  readAgentToken,
  TokenAnswer,
  type ActivationRequest,
  type ActivationStep,
} from "../../protocol/channel/activation.ts";
import { ACTIVATION_PATH, TOKEN_PATH } from "../../protocol/channel/envelope.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { thumbprint } from "../../protocol/values/keys.ts";
import { authSigner, publicKeys } from "./identity.ts";
import { keysFor, postTo, readLicense, refuseRegistered, type RegisterDeps } from "./registration.ts";

export type ActivationDeps = RegisterDeps & { readonly clock: Pick<Clock, "now"> };

/**
 * Requests the license of a machine once: by a code, which is shown until it is approved, or by an agent token.
 * Safe to repeat: the same key gets the same code until that expires, and the same license.
 * @throws {InputError} `already-registered`, `bad-token`, `bad-license`, or the control plane's own refusal.
 */
export function askForLicense(
  request: ActivationRequest,
  deps: ActivationDeps,
  signal: AbortSignal,
): Promise<ActivationStep> {
  return deps.files.oneAtATime(() =>
    "token" in request ? useToken(request, deps, signal) : askForCode(request, deps, signal),
  );
}

async function askForCode(
  { url, pins }: { readonly url: string; readonly pins: readonly string[] },
  deps: ActivationDeps,
  signal: AbortSignal,
): Promise<ActivationStep> {
  await refuseRegistered(deps);
  const keys = await keysFor(deps.files);
  const jkt = await thumbprint(publicKeys(keys).auth);
  const device = await deps.device();
  const ask = async (seq: number): Promise<ActivationAnswer> => {
    const claims = { aud: url, seq, keys: publicKeys(keys), device };
    const activation = await signJws("holdfast-activation+jwt", claims, await authSigner(keys));
    return postTo(deps.http, { url: `${url}${ACTIVATION_PATH}`, pins }, { activation }, ActivationAnswer, signal);
  };
  const answer = await ask(deps.clock.now()).catch((error: unknown) => {
    const newest = error instanceof InputError && error.code === "replayed" ? error.details?.["seq"] : undefined;
    // If the clock was set back, counting continues from the control plane's last number.
    if (typeof newest === "number") return ask(newest + 1);
    throw error;
  });
  if (answer.state === "pending") return { ...answer, key: jkt };
  return { state: "approved", license: boundLicense(answer.license, url, jkt) };
}

async function useToken(
  { token: text }: { readonly token: string },
  deps: ActivationDeps,
  signal: AbortSignal,
): Promise<ActivationStep> {
  const token = readAgentToken(text.trim());
  if (token === undefined) throw new InputError("bad-token", "token: this is no agent token, or it was cut");
  await refuseRegistered(deps);
  const keys = await keysFor(deps.files);
  const { iss, id, secret, spki } = token;
  const claims = { aud: iss, id, secret, keys: publicKeys(keys) };
  const exchange = await signJws("holdfast-token-use+jwt", claims, await authSigner(keys));
  const to = { url: `${iss}${TOKEN_PATH}`, pins: spki };
  const { license } = await postTo(deps.http, to, { exchange }, TokenAnswer, signal);
  const jws = boundLicense(license, iss, await thumbprint(publicKeys(keys).auth));
  if (readLicense(jws).root !== token.root) {
    throw new InputError("bad-license", "license: its root is not the one that the token names");
  }
  return { state: "approved", license: jws };
}

/** Rejects a license of another control plane or for another key. @throws {InputError} `bad-license`. */
function boundLicense(jws: string, iss: string, jkt: string): string {
  const license = readLicense(jws);
  if (license.iss !== iss) throw new InputError("bad-license", `license: made by ${license.iss}, not by ${iss}`);
  if (license.cnf?.jkt !== jkt) throw new InputError("bad-license", "license: not bound to the key of this machine");
  return jws;
}
