import type { Figure } from "../figures.ts";
import { delay, freePort } from "../programs.ts";
import { aListener, type OverlayContender, type Ports } from "./contenders.ts";
import type { Load } from "./load-client.ts";

const FLOWS = 200;
const CHANGES = 50;

/** Flows that are cut while other entries come and go, and their own change in all that is no reason to cut them. */
export async function changes(load: Load, overlay: OverlayContender, to: Ports): Promise<Figure[]> {
  await load.ask({ do: "hold", port: overlay.ports.echo, count: FLOWS, keepOn: true });
  for (let change = 0; change < CHANGES; change += 1) {
    const port = await freePort();
    const elsewhere = { key: `second:${port}`, addresses: ["127.0.0.2"] };
    const others =
      change % 2 === 0 ? [] : [aListener(port, to.echo), Object.assign(aListener(port, to.sink), elsewhere)];
    const own = { bitsPerSecond: 1e9 + change, maxFlows: 1000 + change, idleTimeoutMs: 3_600_000 + change };
    await overlay.control.peer.request("table.set", { table: overlay.table(others, own) });
    await delay(20);
  }
  const { cut, exchanged } = await load.ask({ do: "release" });
  if (exchanged < FLOWS * CHANGES) throw new Error(`the flows stood still: ${exchanged} messages came back`);
  await overlay.control.peer.request("table.set", { table: overlay.table([]) });
  return [{ what: `of ${FLOWS} flows cut by ${CHANGES} changes`, value: cut, unit: "", bar: { of: "value", most: 0 } }];
}
