import { InputError, SessionError } from "../../errors.ts";
import { readTextInput } from "../../host/process/text-input.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { plainLine, plainText, safeJson } from "../../lib/text/terminal-text.ts";
import { firstIssueText } from "../../protocol/values/issue-text.ts";
import { LOCAL_REQUEST_LIMITS } from "../../protocol/local/api.ts";
import { TriggerLine } from "../../protocol/local/answers.ts";
import { EventName, JsonObject } from "../../protocol/values/values.ts";
import { adminRequest, follow } from "../frame/client.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";
import { triggerEvents } from "../../protocol/values/trigger-events.ts";

type Progress = Extract<TriggerLine, { kind: "progress" }>;

export const triggerVerb: Verb = {
  name: "trigger",
  summary: "run a trigger event on this node and show its output",
  about:
    "Ctrl-C cancels it. A measurement that finds nothing, such as a ping without reply, is a result and ends with 0. " +
    "With --json each line is one object: progress, then the result.",
  arguments: [
    { name: "event", isRequired: true, help: "the event's name", complete: triggerEvents },
    { name: "json", isRequired: false, help: "the event's body as JSON, or - for standard input", complete: "none" },
  ],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "unregistered", "timeout", "interrupted"],
  example: `holdfast trigger tg-ping '{"host":"192.0.2.1"}'`,
  output: TriggerLine,
  async run(call) {
    const event = eventName(call.positionals[0] ?? "");
    const body = await triggerBody(call.positionals[1], call.signal);
    let hasOutput = false;
    for await (const line of follow(call, adminRequest(`/v1/trigger/${event}`, body), TriggerLine)) {
      if (line.kind === "error") throw failure(event, line);
      if (call.settings.isJson) call.terminal.out(`${safeJson(line)}\n`);
      switch (line.kind) {
        case "progress":
          hasOutput ||= line.channel === "stdout";
          if (!call.settings.isJson) showProgress(call, line);
          break;
        case "result":
          if (!call.settings.isJson) showResult(call, line.body, hasOutput);
          return "ok";
      }
    }
    throw new SessionError("interrupted", `the agent ended ${event} without a result: see 'holdfast logs'`);
  },
};

/** Returns the failure of an event as an error of this command. */
function failure(event: string, { code, message, details }: Extract<TriggerLine, { kind: "error" }>): SessionError {
  const near = code === "unknown-event" ? nearest(event, triggerEvents) : undefined;
  const hint = near === undefined ? "" : `: did you mean ${near}?`;
  return new SessionError(code, `${event} failed: ${message}${hint}`, details === undefined ? {} : { details });
}

function eventName(text: string): string {
  const parsed = EventName.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new InputError("usage", `'${text}' cannot be the name of a trigger event: ${firstIssueText(parsed.error)}`);
}

/** Parses the event's body: one JSON object from the argument, or from standard input for `-`. */
async function triggerBody(argument: string | undefined, signal: AbortSignal): Promise<JsonObject> {
  const text = argument === "-" ? await readTextInput("-", LOCAL_REQUEST_LIMITS.maxBytes, signal) : (argument ?? "");
  if (text.trim() === "") return {};
  let value: unknown;
  try {
    value = parseStrictJson(text, LOCAL_REQUEST_LIMITS);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "";
    throw new InputError("usage", `the body of the event is wrong: ${reason}`, { cause: error });
  }
  if (value === null) return {};
  const parsed = JsonObject.safeParse(value);
  if (parsed.success && !Array.isArray(value)) return parsed.data;
  throw new InputError("usage", `the body of the event must be a JSON object such as '{"host":"192.0.2.1"}'`);
}

function showProgress({ terminal }: Call, { channel, data }: Progress): void {
  switch (channel) {
    case "stdout":
      return terminal.out(plainText(textOf(data)));
    case "stderr":
      return terminal.err(plainText(textOf(data)));
    case "json":
      return terminal.out(`${safeJson(data)}\n`);
    case "percent":
      if (terminal.isInteractive) terminal.err(`${plainLine(textOf(data))} %\n`);
  }
}

/** Prints the result: text as text, otherwise JSON; nothing if the stream already printed everything. */
function showResult({ terminal }: Call, body: unknown, hasOutput: boolean): void {
  if (body === null || body === undefined || body === true) return;
  const message = messageOf(body);
  if (message === undefined || hasOutput) {
    const text = safeJson(body, hasOutput ? undefined : 2);
    return hasOutput ? terminal.err(`${text}\n`) : terminal.out(`${text}\n`);
  }
  const text = plainText(message);
  terminal.out(text.endsWith("\n") ? text : `${text}\n`);
}

function messageOf(body: unknown): string | undefined {
  const output = field(body, "output");
  const message = field(output, "message");
  return typeof message === "string" ? message : undefined;
}

function field(value: unknown, name: string): unknown {
  const parsed = JsonObject.safeParse(value);
  return parsed.success ? parsed.data[name] : undefined;
}

function textOf(data: unknown): string {
  return typeof data === "string" ? data : safeJson(data);
}
