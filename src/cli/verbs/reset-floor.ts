import { z } from "zod";
import { InputError } from "../../errors.ts";
import { requireOwner } from "../../host/files/state-directory.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { safeJson } from "../../lib/text/terminal-text.ts";
import { FloorName } from "../../protocol/local/api.ts";
import { FloorReset, Status } from "../../protocol/local/answers.ts";
import { adminRequest, ask, fetchReport } from "../frame/client.ts";
import type { Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

const ResetFloorOutput = z.object({ schema: z.literal(1), ...FloorReset.shape });

export const resetFloorVerb: Verb = {
  name: "reset-floor",
  summary: "let a document return to a lower version",
  about: "Only for a control plane that was restored from a backup and cannot count on from the node's version.",
  arguments: [
    {
      name: "document",
      isRequired: true,
      help: "keys, node, cluster or domain",
      complete: ["keys", "node", "cluster", "domain"],
    },
  ],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast reset-floor node",
  output: ResetFloorOutput,
  async run(call) {
    const name = floorName(call.positionals[0] ?? "");
    const { state } = await fetchReport(call, "/v1/status", Status);
    requireOwner(state.stateDir);
    const reset = await ask(call, adminRequest("/v1/reset-floor", { name }), FloorReset);
    const text = `the floor of ${reset.name} went from ${reset.from} to ${reset.to}: the node takes any signed version above that\n`;
    call.terminal.out(call.settings.isJson ? `${safeJson({ schema: 1, ...reset })}\n` : text);
    return "ok";
  },
};

function floorName(text: string): FloorName {
  const parsed = FloorName.safeParse(text);
  if (parsed.success) return parsed.data;
  const near = nearest(text, FloorName.options);
  const hint = near === undefined ? `one of ${FloorName.options.join(", ")}` : `did you mean ${near}?`;
  throw new InputError("usage", `'${text}' is no document: ${hint}`);
}
