import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { formatCount, formatDuration } from "../../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { Version } from "../../../protocol/values/values.ts";
import { triggerAnswer } from "../../frame/trigger-answer.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

const NatRow = z.object({
  trackerID: z.string(),
  type: z.enum(["inside", "outside"]),
  networkName: z.string(),
  insideCIDR: z.string(),
  outsideCIDR: z.string(),
  hits: Version,
  initialHit: Version.nullable(),
  latestHit: Version.nullable(),
});
/** The translations and their hits; `total` includes those omitted for size. */
const NatList = z.object({ nats: z.array(NatRow), total: Version, truncated: z.boolean().optional() });
const NatReset = z.object({ reset: Version });

export const natsVerb: Verb = {
  name: "nats",
  summary: "show the address translations of this node and how often each was hit",
  about: "Hits are flows, counted since the agent started or --reset. Needs root.",
  arguments: [
    { name: "tracker", isRequired: false, help: "only the translation with this tracker id", complete: "none" },
  ],
  options: { reset: { help: "reset the counter of the tracker, or of all" }, ...COMMON },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast nats",
  output: z.union([NatList, NatReset]),
  async run(call) {
    const { terminal, settings, values, positionals } = call;
    const tracker = positionals[0];
    if (tracker === "" || (tracker?.length ?? 0) > 128)
      throw new InputError("usage", "a tracker id has 1 to 128 characters");
    const filter = tracker === undefined ? {} : { trackerID: tracker };
    if (values["reset"] === true) {
      const action = tracker === undefined ? "RESET_ALL" : "RESET";
      const answer = await triggerAnswer(call, "nat-hits", { action, ...filter }, NatReset);
      terminal.out(
        settings.isJson ? `${safeJson(answer)}\n` : `${formatCount(answer.reset, "translation")} counted anew\n`,
      );
      return tracker !== undefined && answer.reset === 0 ? "failed" : "ok";
    }
    const answer = await triggerAnswer(call, "nat-hits", { action: "GET", ...filter }, NatList);
    terminal.out(settings.isJson ? `${safeJson(answer)}\n` : listText(call, plainValue(answer)));
    return tracker !== undefined && answer.nats.length === 0 ? "failed" : "ok";
  },
};

function listText({ terminal, clock, positionals }: Call, { nats, total, truncated }: z.infer<typeof NatList>): string {
  if (nats.length === 0) {
    return positionals[0] === undefined
      ? "the applied configuration has no translation\n"
      : "no translation of this tracker id\n";
  }
  const now = clock.now();
  const lines = nats.map(({ trackerID, type, networkName, insideCIDR, outsideCIDR, hits, latestHit }) => {
    const where = networkName === "" ? "" : ` in ${networkName}`;
    const outside = outsideCIDR === "" ? "the interface's address" : outsideCIDR;
    const translation = type === "inside" ? `${insideCIDR} → ${outside}` : `${outside} → ${insideCIDR}`;
    const last = latestHit === null ? "" : `, last ${formatDuration(now - latestHit * 1000)} ago`;
    return `${terminal.style("bold", trackerID)} ${translation}${where}: ${formatCount(hits, "hit")}${last}\n`;
  });
  return lines.join("") + (truncated === true ? `not all: there are ${total}\n` : "");
}
