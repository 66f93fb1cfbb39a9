import { z } from "zod";
import { AgentError, InputError } from "../errors.ts";
import { readTextInput } from "../host/text-input.ts";
import { holdfastCommand } from "../lib/command-line.ts";
import { plainValue, safeJson } from "../lib/terminal-text.ts";
import { NodeIdentity } from "../protocol/claims.ts";
import { adminRequest, ask, isAbsent } from "./client.ts";
import { readLicense } from "./license.ts";
import type { Settings } from "./settings.ts";
import type { Call, VerbProgram } from "./verb.ts";

// Room for white space around a license of the largest size.
export const FILE_MAX_BYTES = 64 * 1024;

const RegisterOutput = z.object({
  schema: z.literal(1),
  node: NodeIdentity,
  /** Who did it: a running agent, which connects at once, or this command alone. */
  by: z.enum(["agent", "command"]),
});
export type RegisterOutput = z.infer<typeof RegisterOutput>;

export const registerVerb: VerbProgram = {
  output: RegisterOutput,
  async run(call) {
    const { text } = readLicense(await readTextInput(call.positionals[0] ?? "-", FILE_MAX_BYTES, call.signal));
    const output = await registerWith(call, text).catch((error: unknown) => {
      throw explained(error, call.settings);
    });
    call.terminal.out(call.settings.isJson ? `${safeJson(output)}\n` : summary(output, call.settings));
    return "ok";
  },
};

/** Has the running agent register, or does it alone when none runs. */
export async function registerWith(call: Call, license: string): Promise<RegisterOutput> {
  try {
    return { schema: 1, node: await ask(call, adminRequest("/v1/register", { license }), NodeIdentity), by: "agent" };
  } catch (error) {
    if (!isAbsent(error) || call.offline.register === undefined) throw error;
    const registerOffline = await call.offline.register();
    return { schema: 1, node: await registerOffline(call.settings.stateDir, license, call.signal), by: "command" };
  }
}

/** A refusal that says what to do is told for the directories at hand. */
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
