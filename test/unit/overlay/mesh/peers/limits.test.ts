import { describe, expect, it } from "vitest";
import { aClient, aListener, aService, echo } from "../../../../support/overlay/overlay-rig.ts";
import { grant, peerRig, remoteService } from "../../../../support/overlay/peer-rig.ts";
import { aPeer, echoDatagram, freeUdpPort } from "../../../../support/overlay/udp-peer.ts";
import { untilStill } from "../../../../support/until-still.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const SLOW = 8000;
const TOTAL = 1024 * 1024;

describe("the node's limits over all tunnels", () => {
  it.each([
    ["source", "out"],
    ["source", "in"],
    ["destination", "out"],
    ["destination", "in"],
  ] as const)("apply to a flow at its %s, %s, and a new limit applies at once", async (end, direction) => {
    const { port, ...nodes } = await remoteService(echo);
    const { [direction]: limiter } = nodes[end].limiters;
    limiter.setRate(SLOW);
    const client = aClient(port);
    let received = 0;
    client.socket.on("data", (chunk: Buffer) => (received += chunk.length));
    client.socket.write(Buffer.alloc(TOTAL));
    expect(await untilStill("as much has come as comes", () => received)).toBeLessThan(TOTAL);
    limiter.setRate(undefined);
    await waitFor("the rest", () => received === TOTAL);
  });

  it("drop datagrams above the rate, and pass those below", async () => {
    const rig = peerRig();
    const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
    const [backend, client] = [await aPeer(echoDatagram), await aPeer()];
    const port = await freeUdpPort();
    await destination.apply([], [aService("dns", backend.port, { protocol: "udp" })]);
    await source.apply([aListener(port, { peer: destination.uid, service: "dns" }, { protocol: "udp" })]);
    source.meet([destination.peer]);
    destination.meet([source.peer], [grant(source, "dns", "udp")]);
    const ask = (): void => client.socket.send("?", port, "127.0.0.1");
    await waitFor("an answer", () => {
      ask();
      return client.received.length > 0;
    });
    source.limiters.out.setRate(SLOW);
    await waitFor("datagrams are dropped", () => {
      for (let i = 0; i < 20; i += 1) client.socket.send("x".repeat(1000), port, "127.0.0.1");
      return source.counters().datagramsDropped > 100;
    });
    source.limiters.out.setRate(undefined);
    const before = client.received.filter((text) => text === "?").length;
    await waitFor("answers again", () => {
      ask();
      return client.received.filter((text) => text === "?").length > before + 3;
    });
  });
});
