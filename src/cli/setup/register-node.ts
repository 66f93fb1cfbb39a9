import { z } from "zod";
import { NodeIdentity } from "../../protocol/documents/claims.ts";
import { adminRequest, ask, isAbsent } from "../frame/client.ts";
import type { Call } from "../frame/verb.ts";

export const RegisterOutput = z.object({
  schema: z.literal(1),
  node: NodeIdentity,
  /** A running agent connects at once. */
  by: z.enum(["agent", "command"]),
});
export type RegisterOutput = z.infer<typeof RegisterOutput>;

/** Registers through the running agent, or without one directly in the state directory. */
export async function registerWith(call: Call, license: string): Promise<RegisterOutput> {
  try {
    return { schema: 1, node: await ask(call, adminRequest("/v1/register", { license }), NodeIdentity), by: "agent" };
  } catch (error) {
    if (!isAbsent(error) || call.offline.register === undefined) throw error;
    const registerOffline = await call.offline.register();
    return { schema: 1, node: await registerOffline(call.settings.stateDir, license, call.signal), by: "command" };
  }
}
