import { InputError, SessionError } from "../../errors.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { plainLine, safeJson } from "../../lib/text/terminal-text.ts";
import { PushedLogs } from "../../protocol/documents/bundle.ts";
import { TriggerLine } from "../../protocol/local/answers.ts";
import { adminRequest, follow } from "../frame/client.ts";
import { byReason } from "./part.ts";
import type { Call } from "../frame/verb.ts";
import { defined } from "../../lib/defined.ts";

const SCHEME = "store:";

/** Returns the path in the data store that `--to` names, or undefined. @throws {InputError} `usage` */
export function storePath(to: string | boolean | undefined): string | undefined {
  if (typeof to !== "string" || !to.startsWith(SCHEME)) return undefined;
  const path = to.slice(SCHEME.length);
  if (path !== "") return path;
  throw new InputError("usage", "--to store: needs a path in the data store, such as store:bundles/node.tar.gz");
}

/** Makes the bundle through the agent, which owns the data store and its quota. */
export async function bundleInStore(call: Call, file: string, maxBytes: number | undefined): Promise<"ok"> {
  const body = { file, ...defined({ maxBytes }) };
  for await (const line of follow(call, adminRequest("/v1/trigger/node-push-logs", body), TriggerLine)) {
    if (line.kind === "error") throw new SessionError(line.code, line.message);
    if (line.kind !== "result") continue;
    const made = PushedLogs.parse(line.body);
    const { terminal, settings } = call;
    const gone = byReason(made.missing)
      .map(({ names, reason }) => `without ${plainLine(names.join(", "))}: ${plainLine(reason)}\n`)
      .join("");
    terminal.out(
      settings.isJson
        ? `${safeJson(made)}\n`
        : `${gone}store:${plainLine(made.file ?? file)}: ${sizeText(made.bytes)}; review it before you share it\n`,
    );
    return "ok";
  }
  throw new SessionError("interrupted", "the agent ended without a result: see 'holdfast logs'");
}
