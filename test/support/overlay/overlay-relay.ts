import { connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { linesOf } from "../../../src/lib/text/lines.ts";

/** A line on the control socket: a call to the overlay, or its answer. */
export interface Passage {
  readonly is: "call" | "answer";
  readonly method: string;
}

export interface OverlayRelay {
  /** Called for each line before it is passed on; a refused line is dropped. `after` runs once it was passed. */
  decide: (passage: Passage) => { readonly passes: boolean; readonly after?: () => void };
}

/** A relay between the agent and its overlay: listens at `from` and passes lines to the socket `to`. Ends with the test. */
export async function relayOverlay(from: string, to: string): Promise<OverlayRelay> {
  const relay: OverlayRelay = { decide: () => ({ passes: true }) };
  const sockets = new Set<Socket>();
  const server = createServer((agent) => {
    const overlay = connect(to);
    const methods = new Map<unknown, string>();
    for (const socket of [agent, overlay]) {
      sockets.add(socket.on("error", () => undefined));
      socket.on("close", () => [agent, overlay].map((one) => one.destroy()));
    }
    const pass = async (source: Socket, target: Socket, is: Passage["is"]): Promise<void> => {
      for await (const line of linesOf(source, 1_000_000)) {
        const { id, method = "" } = JSON.parse(line.toString()) as { readonly id?: unknown; readonly method?: string };
        if (is === "call") methods.set(id, method);
        const known = is === "call" || id === undefined ? method : (methods.get(id) ?? "");
        const { passes, after } = relay.decide({ is, method: known });
        if (passes) await new Promise((resolve) => target.write(`${line.toString()}\n`, resolve));
        after?.();
      }
    };
    for (const work of [pass(agent, overlay, "call"), pass(overlay, agent, "answer")])
      work.catch(() => agent.destroy());
  });
  await new Promise<void>((resolve) => server.listen(from, resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return relay;
}
