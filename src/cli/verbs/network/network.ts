import { InputError, toError } from "../../../errors.ts";
import { readTextInput } from "../../../host/process/text-input.ts";
import { parseStrictJson } from "../../../lib/formats/strict-json.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { TRY_MINUTES } from "../../../protocol/values/commit.ts";
import { READ_SOCKET, type NetworkTryRequest } from "../../../protocol/local/api.ts";
import { CommitReport } from "../../../protocol/local/commit.ts";
import { PLAN_REQUEST_LIMITS } from "../../../protocol/documents/reconcile.ts";
import { JsonObject } from "../../../protocol/values/values.ts";
import { adminRequest, ask, type AgentRequest } from "../../frame/client.ts";
import { networkText } from "../../text/network-text.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

export const networkVerb: Verb = {
  name: "network",
  summary: "show the state of a network change; try, keep or revert one",
  about:
    "A change that could cut this node off is reverted unless it proves in time that the control plane and a gateway are reached. " +
    "'try' applies the network of a file instead of the control plane's for a number of minutes; 'keep' confirms it before they end. A " +
    "confirmed network applies until a restart or until the control plane changes the network. 'revert' reverts a change at once.",
  arguments: [
    {
      name: "action",
      isRequired: false,
      help: "show (default), try, keep or revert",
      complete: ["show", "try", "keep", "revert"],
    },
    {
      name: "file",
      isRequired: false,
      help: "for try: JSON with the section network, or - for standard input",
      complete: "file",
    },
  ],
  options: {
    minutes: { value: "MINUTES", help: "how long a try lasts: 10 (default), 30 or 60", complete: ["10", "30", "60"] },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast network try network.json --minutes 10",
  timeoutSeconds: 180,
  output: CommitReport,
  async run(call) {
    const before = call.clock.now();
    const report = await ask(call, await requestOf(call), CommitReport);
    const { columns } = call.terminal.size();
    const paint = call.terminal.style.bind(call.terminal);
    const text = networkText(plainValue(report), call.clock.now(), columns, paint);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : text);
    return exitOf(call.positionals[0], report, before);
  },
};

async function requestOf(call: Call): Promise<AgentRequest> {
  const [action = "show", file] = call.positionals;
  if (action !== "try" && file !== undefined) throw new InputError("usage", `network ${action} takes no argument`);
  switch (action) {
    case "show":
      return { method: "GET", path: "/v1/network/change", socket: READ_SOCKET };
    case "keep":
    case "revert":
      return adminRequest(`/v1/network/${action}`, {});
    case "try":
      if (file === undefined) throw new InputError("usage", "network try needs a file with the network, or -");
      return adminRequest("/v1/network/try", await tryRequest(call, file));
    default:
      throw new InputError("usage", `network takes show, try, keep or revert, not '${action}'`);
  }
}

async function tryRequest(call: Call, file: string): Promise<NetworkTryRequest> {
  const minutes = TRY_MINUTES.find((minutes) => String(minutes) === (call.values["minutes"] ?? "10"));
  if (minutes === undefined) throw new InputError("usage", `--minutes takes ${TRY_MINUTES.join(", ")}`);
  const text = await readTextInput(file, PLAN_REQUEST_LIMITS.maxBytes, call.signal);
  return { network: networkOf(file, text), minutes };
}

/** Returns the section from a file that contains the section, `{network}`, or a node document with `config.network`. */
function networkOf(path: string, text: string): JsonObject {
  let value: unknown;
  try {
    value = parseStrictJson(text, PLAN_REQUEST_LIMITS);
  } catch (error) {
    throw new InputError("usage", `${path} cannot be read: ${toError(error).message}`, { cause: error });
  }
  const whole = JsonObject.safeParse(value);
  if (!whole.success) throw new InputError("usage", `${path} holds no object`);
  const config = JsonObject.safeParse(whole.data["config"]);
  const sections = config.success ? config.data : whole.data;
  if (!Object.hasOwn(sections, "network")) return config.success ? {} : whole.data;
  const network = JsonObject.safeParse(sections["network"]);
  if (!network.success) throw new InputError("usage", `${path}: network is no object`);
  return network.data;
}

/** Returns the exit status: a trial that was rolled back has failed; a query succeeds. */
function exitOf(action: string | undefined, { pending, lastTakenBack }: CommitReport, since: number): ExitClass {
  const isFresh = lastTakenBack !== undefined && lastTakenBack.at >= since;
  return action === "try" && pending === undefined && isFresh ? "failed" : "ok";
}
