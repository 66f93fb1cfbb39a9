import { InputError } from "../../errors.ts";
import { formatBytes, formatDuration } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { CAPTURE_EVENT, CaptureAnswer } from "../../protocol/triggers/capture.ts";
import { LinkName } from "../../protocol/values/values.ts";
import { triggerAnswer } from "../frame/trigger-answer.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { wholeOption } from "../frame/whole-option.ts";

export const capturesVerb: VerbProgram = {
  output: CaptureAnswer,
  async run(call) {
    const answer = await triggerAnswer(call, CAPTURE_EVENT, bodyOf(call), CaptureAnswer);
    const { terminal, settings, clock } = call;
    terminal.out(settings.isJson ? `${safeJson(answer)}\n` : captureText(plainValue(answer), clock.now()));
    return "ok";
  },
};

function bodyOf(call: Call): Readonly<Record<string, unknown>> {
  const [action = "status", iface = "", filter = ""] = call.positionals;
  if (action !== "start") {
    if (action !== "stop" && action !== "status")
      throw new InputError("usage", `action '${action}' is unknown: use start, stop or status`);
    if (call.positionals.length > 1) throw new InputError("usage", `${action} takes no further arguments`);
    return { action };
  }
  if (!LinkName.safeParse(iface).success)
    throw new InputError("usage", `'${iface}' cannot be the name of an interface`);
  if (filter.length > 512) throw new InputError("usage", "a filter has at most 512 characters");
  const megabytes = wholeOption(call, "megabytes", 1, 1000);
  const seconds = wholeOption(call, "seconds", 1, 86_400);
  const count = wholeOption(call, "count", 1, 100_000_000);
  return {
    action,
    iface,
    filter,
    ...(megabytes === undefined ? {} : { maxMegabytes: megabytes }),
    ...(seconds === undefined ? {} : { maxSeconds: seconds }),
    ...(count === undefined ? {} : { packetCount: count }),
    ...(call.values["delete"] === true ? { deleteExisting: true } : {}),
  };
}

function captureText({ state, capture, files }: CaptureAnswer, now: number): string {
  const lines = files.map(({ path, bytes }) => `${path}  ${formatBytes(bytes)}\n`);
  if (capture === undefined) return `no capture since the agent's start\n${lines.join("")}`;
  const { iface, filter, startedAt, endedAt = now, packets, bytes, reason, user } = capture;
  const what = filter === "" ? iface : `${iface}, ${filter}`;
  const counted = `${packets} packets, ${formatBytes(bytes)} in ${formatDuration(endedAt - startedAt)}`;
  const why = reason === undefined ? "" : `: ${reason.message}`;
  return `${state.toLowerCase()} (${what}; started by ${user}), ${counted}${why}\n${lines.join("")}`;
}
