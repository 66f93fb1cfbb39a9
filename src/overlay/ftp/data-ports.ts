import type { Socket } from "node:net";
import type { Clock } from "../../host/clock.ts";
import type { SocketBudget } from "../socket-budget.ts";
import { openDataPort, type DataPort } from "./data-port.ts";
import { ftpControl, type FlowFilter } from "./ftp-control.ts";

export interface FtpFilterOptions {
  /** Of the control channel. */
  readonly client: Socket;
  readonly clock: Clock;
  readonly budget: SocketBudget;
  /** Leads a data connection to a port of the server. */
  readonly onData: (socket: Socket, serverPort: number) => void;
}

/** Data connections that one control channel may wait for. */
const MAX_WAITING = 8;

/** What makes a flow the control channel of FTP: it listens for the data connections that the server's replies name. */
export function ftpFilter({ client, clock, budget, onData }: FtpFilterOptions): FlowFilter {
  const waiting = new Set<DataPort>();
  const address = client.localAddress ?? "";
  const sourceIp = client.remoteAddress ?? "";

  const openData = (serverPort: number): DataPort | undefined => {
    if (waiting.size >= MAX_WAITING || !budget.hasRoom(1)) return undefined;
    try {
      const port = openDataPort({
        clock,
        address,
        sourceIp,
        onConnection: (socket) => onData(socket, serverPort),
        onClose() {
          waiting.delete(port);
          budget.give(1);
        },
      });
      budget.take(1);
      waiting.add(port);
      return port;
    } catch {
      // No port, or no descriptor: the client is told that there is no data connection.
      return undefined;
    }
  };
  return ftpControl({
    openData,
    say: (line) => void client.write(line, "latin1"),
    onClose() {
      for (const port of waiting) port.close();
    },
  });
}
