import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import type { StreamEnd } from "../../protocol/channel/streams.ts";
import type { AuditParts, EventLog } from "../events/service.ts";
import type { NodeTerminal } from "../http/upgrade.ts";
import { refuseAccessTo, refuseWhileHeld } from "../nodes/held-identity.ts";
import type { NodeService } from "../nodes/service.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TerminalRequest } from "./records.ts";

export interface TerminalsDeps {
  readonly store: AuditParts & { readonly nodes: Pick<NodeStore, "credentials"> };
  readonly nodes: Pick<NodeService, "stored">;
  readonly events: Pick<EventLog, "audit">;
  /** Streams to nodes; `open` resolves once the node has connected. */
  readonly streams: {
    open(
      uid: string,
      request: {
        readonly kind: "container-exec";
        readonly params: Omit<TerminalRequest, "user">;
        readonly user: string;
      },
      signal: AbortSignal,
    ): Promise<{ join(client: FrameSocket): Promise<StreamEnd>; discard(): void }>;
  };
  readonly log: Logger;
}

/** Terminals in containers of nodes; their starts and ends are in the audit trail. */
export class Terminals {
  readonly #deps: TerminalsDeps;

  constructor(deps: TerminalsDeps) {
    this.#deps = deps;
  }

  /**
   * Opens a terminal; resolves once the node has connected.
   * @throws {InputError} `not-found`, `busy`, `unauthorized-ip`; {SessionError} with the code of a node's error
   */
  async open(uid: string, { user, ...params }: TerminalRequest, signal: AbortSignal): Promise<NodeTerminal> {
    const { store, nodes, events, streams, log } = this.#deps;
    const node = await nodes.stored(uid);
    await refuseWhileHeld(store, uid);
    if (node.unauthorizedIp !== undefined) await refuseAccessTo(store, uid, node.unauthorizedIp);
    const stream = await streams.open(uid, { kind: "container-exec", params, user }, signal);
    const audit = (action: string): Promise<void> => events.audit(store, node, `${user} ${action}`);
    // Terminals are only opened if they can be audited.
    try {
      await audit(`opened a terminal in container ${params.container}`);
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
            log.error({ node: uid, err: toError(error) }, "cannot store the end of a terminal"),
          );
      },
    };
  }
}

function endText(end: StreamEnd): string {
  if (end.type === "error") return end.message;
  return end.code === null ? "its command ended" : `exit code ${end.code}`;
}
