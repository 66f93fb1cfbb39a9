import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { StreamEnd } from "../../protocol/channel/streams.ts";
import type { Streams } from "../channel/streams.ts";
import type { EventLog } from "../events/service.ts";
import type { TerminalRequest } from "./records.ts";
import type { NodeTerminal } from "../http/upgrade.ts";
import type { NodeLabel } from "../events/records.ts";

export interface TerminalDeps {
  readonly events: EventLog;
  readonly streams: Pick<Streams, "open">;
  readonly log: Logger;
}

/** Opens a terminal in a container of a node and records its start and end in the audit trail. Rejects as `Streams.open`. */
export async function openTerminal(
  { events, streams, log }: TerminalDeps,
  node: NodeLabel,
  { user, ...params }: TerminalRequest,
  signal: AbortSignal,
): Promise<NodeTerminal> {
  const stream = await streams.open(node.uid, { kind: "container-exec", params, user }, signal);
  const audit = (action: string): void => events.audit(node, `${user} ${action}`);
  // Terminals are only opened if they can be audited.
  try {
    audit(`opened a terminal in container ${params.container}`);
  } catch (error) {
    stream.discard();
    throw error;
  }
  return {
    discard: () => stream.discard(),
    join: (client) => {
      void stream
        .join(client)
        .then((end) => audit(`closed a terminal in container ${params.container}: ${endText(end)}`))
        .catch((error: unknown) =>
          log.error({ node: node.uid, err: toError(error) }, "cannot store the end of a terminal"),
        );
    },
  };
}

function endText(end: StreamEnd): string {
  if (end.type === "error") return end.message;
  return end.code === null ? "its command ended" : `exit code ${end.code}`;
}
