import { z } from "zod";
import { InputError, SessionError } from "../../../errors.ts";
import { plainText, safeJson } from "../../../lib/text/terminal-text.ts";
import { TriggerLine } from "../../../protocol/local/answers.ts";
import { LinkName } from "../../../protocol/values/values.ts";
import { adminRequest, follow } from "../../frame/client.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";
import { COMMON } from "../../frame/verb-options.ts";
import { defined } from "../../../lib/defined.ts";

/** A line of a packet, or a remark about the capture. */
const CaptureLine = z.union([z.object({ packet: z.string() }), z.object({ note: z.string() })]);

export const captureVerb: Verb = {
  name: "capture",
  summary: "show the packet headers of an interface, one line each",
  about:
    "Shows no content, and at most 500 lines per second, until Ctrl-C. With --json each line is one object. Needs root.",
  arguments: [
    { name: "interface", isRequired: true, help: "the interface", complete: "none" },
    { name: "filter", isRequired: false, help: "which packets, as one argument in pcap-filter(7)", complete: "none" },
  ],
  options: {
    count: { short: "c", value: "N", help: "how many packets (until Ctrl-C)" },
    to: {
      value: "PATH",
      help: "a file of the data store that gets the lines too, after the end",
      complete: "none",
    },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
  example: "holdfast capture -c 10 eth0 'tcp port 443'",
  output: CaptureLine,
  async run(call) {
    const body = request(call);
    let hasBegun = false;
    try {
      for await (const line of follow(call, adminRequest("/v1/trigger/tg-tcpdump", body), TriggerLine)) {
        hasBegun = true;
        switch (line.kind) {
          case "progress":
            show(call, line.channel === "stdout", typeof line.data === "string" ? line.data : "");
            break;
          case "error": {
            const { code, message, details } = line;
            throw new SessionError(code, message, details === undefined ? {} : { details });
          }
          case "result":
            return exitOf(line.body);
        }
      }
    } catch (error) {
      // Ctrl-C is how it usually ends.
      if (call.signal.aborted && hasBegun) return "ok";
      throw error;
    }
    throw new SessionError("interrupted", "the agent ended the capture without a result: see 'holdfast logs'");
  },
};

function request(call: Call): Readonly<Record<string, unknown>> {
  const [iface = "", filter = ""] = call.positionals;
  if (!LinkName.safeParse(iface).success)
    throw new InputError("usage", `'${iface}' cannot be the name of an interface`);
  if (filter.length > 512) throw new InputError("usage", "a filter has at most 512 characters");
  const count = wholeOption(call, "count", 1, 10_000);
  const { to } = call.values;
  if (to === "") throw new InputError("usage", "--to needs a path in the data store");
  return {
    iface,
    filter,
    maxBytes: 50_000_000,
    ...defined({ packetCount: count, file: to }),
  };
}

function show({ terminal, settings }: Call, isPacket: boolean, text: string): void {
  if (!settings.isJson) return isPacket ? terminal.out(plainText(text)) : terminal.err(plainText(text));
  for (const line of text.split("\n").filter((one) => one !== "")) {
    terminal.out(`${safeJson(isPacket ? { packet: line } : { note: line })}\n`);
  }
}

function exitOf(body: unknown): ExitClass {
  return z.object({ exitCode: z.literal(0) }).safeParse(body).success ? "ok" : "failed";
}
