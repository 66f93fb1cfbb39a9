import { jitter } from "../../lib/async/backoff.ts";
import { AgentError, InputError, SessionError } from "../../errors.ts";
import { readTextInput } from "../../host/process/text-input.ts";
import { holdfastCommand } from "../../lib/text/command-line.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { ActivationRequest, ActivationStep } from "../../protocol/channel/activation.ts";
import { adminRequest, ask, isAbsent } from "../frame/client.ts";
import { readLicense, FILE_MAX_BYTES } from "../frame/license-input.ts";
import { authToken, type Settings } from "../frame/settings.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { RegisterOutput, registerWith } from "../setup/register-node.ts";
import { COMMON } from "../frame/verb-options.ts";

export const registerVerb: Verb = {
  name: "register",
  summary: "register this node with a license, a code or a token",
  about: "Asks the running agent, or does it alone when none runs. Repeating it after a lost answer does no harm.",
  arguments: [
    { name: "license", isRequired: false, help: "a file with the license, or - for standard input", complete: "file" },
  ],
  options: {
    activate: { value: "ORIGIN", help: "show a code for an operator to enter at this control plane, and wait" },
    pin: { value: "SHA256[,...]", help: "TLS keys of that control plane, each a SHA-256 as base64url" },
    token: { value: "TOKEN", help: "an agent token, or - for standard input (AUTH_TOKEN)" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "timeout"],
  example: "holdfast register license.jwt",
  timeoutSeconds: 60,
  output: RegisterOutput,
  async run(call) {
    const output = await registerBy(call).catch((error: unknown) => {
      throw explained(error, call.settings);
    });
    call.terminal.out(call.settings.isJson ? `${safeJson(output)}\n` : summary(output, call.settings));
    return "ok";
  },
};

/** Registers by a license, a token or a code. A token of the environment is used only without a license. */
async function registerBy(call: Call): Promise<RegisterOutput> {
  const { activate, pin, token } = call.values;
  const [file] = call.positionals;
  const given = [activate, token, file].filter((value) => value !== undefined);
  if (given.length > 1)
    throw new InputError("usage", "<license>, --activate, --token: more than one is given; give one");
  if (pin !== undefined && activate === undefined)
    throw new InputError("usage", "--pin is given without --activate; add --activate or remove --pin");
  if (typeof activate === "string") {
    const request = ActivationRequest.safeParse({ url: activate.replace(/\/$/, ""), pins: pinsOf(pin) });
    if (!request.success) {
      throw new InputError(
        "usage",
        "--activate must be an origin such as https://cp.example.net, and --pin a SHA-256 as base64url",
      );
    }
    return registerWith(call, await activated(call, request.data));
  }
  const secret = file === undefined ? await tokenOf(call, token) : undefined;
  if (secret !== undefined) return registerWith(call, await activated(call, { token: secret }));
  if (file === undefined)
    throw new InputError("usage", "no license is given; give <license>, --activate, --token or AUTH_TOKEN");
  const { text } = readLicense(await readTextInput(file, FILE_MAX_BYTES, call.signal));
  return registerWith(call, text);
}

function pinsOf(pin: string | boolean | undefined): readonly string[] {
  return typeof pin === "string" ? pin.split(",").filter((text) => text !== "") : [];
}

/** Returns the token of the option (`-` reads standard input), or of the environment. */
async function tokenOf(call: Call, option: string | boolean | undefined): Promise<string | undefined> {
  if (typeof option !== "string") return authToken();
  return option === "-" ? (await readTextInput("-", FILE_MAX_BYTES, call.signal)).trim() : option;
}

/** Polls until the license is issued, and prints each new code. */
async function activated(call: Call, request: ActivationRequest): Promise<string> {
  let shown: string | undefined;
  for (;;) {
    const step = await askOnce(call, request).catch((error: unknown) => {
      // The control plane may be unreachable for a while; after its restart there is another code.
      if (shown === undefined || !(error instanceof SessionError)) throw error;
      return undefined;
    });
    if (step?.state === "approved") return step.license;
    if (step !== undefined && step.code !== shown) {
      shown = step.code;
      call.terminal.err(codeText(plainValue(step)));
    }
    await call.clock.sleep(jitter((step?.pollSeconds ?? 5) * 1000, [0.8, 1.2], Math.random), call.signal);
  }
}

function codeText({ code, key, expiresInSeconds }: ActivationStep & { readonly state: "pending" }): string {
  const half = Math.ceil(code.length / 2);
  const spaced = `${code.slice(0, half)} ${code.slice(half)}`;
  const minutes = Math.max(1, Math.floor(expiresInSeconds / 60));
  return `\n    Activation code:   ${spaced}\n\nEnter it at the control plane within ${minutes} minutes. This machine's key: ${key}\n`;
}

async function askOnce(call: Call, request: ActivationRequest): Promise<ActivationStep> {
  try {
    return await ask(call, adminRequest("/v1/activate", request), ActivationStep);
  } catch (error) {
    if (!isAbsent(error) || call.offline.activate === undefined) throw error;
    const activateOffline = await call.offline.activate();
    return activateOffline(call.settings.stateDir, request, call.signal);
  }
}

/** Adds the command that resets the node, with its directories, to the error of a registered node. */
function explained(error: unknown, { given }: Settings): unknown {
  if (!(error instanceof AgentError) || error.code !== "already-registered") return error;
  const reset = holdfastCommand("reset", given);
  return new InputError(error.code, `${error.message}: run '${reset}'`, { cause: error });
}

function summary(untrusted: RegisterOutput, { given }: Settings): string {
  const { node, by } = plainValue(untrusted);
  const next =
    by === "agent" ? "the running agent connects now" : `start the node with '${holdfastCommand("agent", given)}'`;
  return `registered ${node.fqdn} (${node.type}, ${node.uid}): ${next}\n`;
}
