import { InputError } from "../../../errors.ts";
import { formatBytes, formatDuration } from "../../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { CAPTURE_EVENT, CaptureAnswer } from "../../../protocol/triggers/capture.ts";
import { LinkName } from "../../../protocol/values/values.ts";
import { triggerAnswer } from "../../frame/trigger-answer.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";
import { COMMON } from "../../frame/verb-options.ts";
import { defined } from "../../../lib/defined.ts";

export const capturesVerb: Verb = {
  name: "captures",
  summary: "capture whole packets into files of the data store",
  about:
    "'start' begins a capture that continues without this command, 'stop' ends it and gives its files their names in captures/, and without an " +
    "action it shows the state of the capture and its files. The files contain whole packets, passwords included.",
  arguments: [
    {
      name: "action",
      isRequired: false,
      help: "status (by default), start or stop",
      complete: ["status", "start", "stop"],
    },
    { name: "interface", isRequired: false, help: "for start: where", complete: "none" },
    { name: "filter", isRequired: false, help: "for start: which packets, as pcap-filter(7)", complete: "none" },
  ],
  options: {
    megabytes: { short: "m", value: "N", help: "for start: of all files, 1 to 1000 (100); the oldest is removed" },
    seconds: { short: "s", value: "N", help: "for start: end after N seconds, at most a day" },
    count: { short: "c", value: "N", help: "for start: end after N packets" },
    delete: { help: "for start: remove the files of earlier captures first" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast captures start eth0 'tcp port 443' -m 50",
  timeoutSeconds: 60,
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
    ...defined({ maxMegabytes: megabytes, maxSeconds: seconds, packetCount: count }),
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
