import { z } from "zod";
import { readTextInput } from "../host/text-input.ts";
import { plainValue, safeJson } from "../lib/terminal-text.ts";
import { NodeIdentity } from "../protocol/claims.ts";
import { adminRequest, ask, isAbsent } from "./client.ts";
import { readLicense } from "./license.ts";
import type { Call, VerbProgram } from "./verb.ts";

// Room for white space around a license of the largest size.
const FILE_MAX_BYTES = 64 * 1024;

const RegisterOutput = z.object({
  schema: z.literal(1),
  node: NodeIdentity,
  /** Who did it: a running agent, which connects at once, or this command alone. */
  by: z.enum(["agent", "command"]),
});
type RegisterOutput = z.infer<typeof RegisterOutput>;

export const registerVerb: VerbProgram = {
  output: RegisterOutput,
  async run(call) {
    const { text } = readLicense(await readTextInput(call.positionals[0] ?? "-", FILE_MAX_BYTES, call.signal));
    const output = await registerWith(call, text);
    call.terminal.out(call.settings.isJson ? `${safeJson(output)}\n` : summary(output));
    return "ok";
  },
};

async function registerWith(call: Call, license: string): Promise<RegisterOutput> {
  try {
    return { schema: 1, node: await ask(call, adminRequest("/v1/register", { license }), NodeIdentity), by: "agent" };
  } catch (error) {
    if (!isAbsent(error) || call.offline.register === undefined) throw error;
    const registerOffline = await call.offline.register();
    return { schema: 1, node: await registerOffline(call.settings.stateDir, license, call.signal), by: "command" };
  }
}

function summary(untrusted: RegisterOutput): string {
  const { node, by } = plainValue(untrusted);
  const next = by === "agent" ? "the running agent connects now" : "start the node with 'holdfast agent'";
  return `registered ${node.fqdn} (${node.type}, ${node.uid}): ${next}\n`;
}
