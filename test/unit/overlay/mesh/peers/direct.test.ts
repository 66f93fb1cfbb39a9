import { expect, describe, it } from "vitest";
import { aClient, aListener, aService, echo, type Client } from "../../../../support/overlay/overlay-rig.ts";
import { grant, remoteService } from "../../../../support/overlay/peer-rig.ts";
import { aPeer, echoDatagram, freeUdpPort } from "../../../../support/overlay/udp-peer.ts";
import { waitFor } from "../../../../support/wait-for.ts";

async function says(client: Client, text: string): Promise<void> {
  client.socket.write(text);
  await waitFor(`an echo of ${text}`, () => client.text().endsWith(text));
}

const fateOf = (client: Client): Promise<string> => waitFor("the client hears of its end", () => client.fate());

describe("flows to or from this node's own gateway", () => {
  it("need only the session of the hop, and are recorded the same way", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    await rig.direct(source, destination);
    const client = aClient(port);
    client.socket.end("hello");
    await waitFor("the echo ends", () => client.fate() === "end");
    expect(client.text()).toBe("hello");
    expect(rig.splices).toEqual([]);
    expect(await source.nextFlow()).toMatchObject({ peer: destination.uid, sourceBytes: 5, destBytes: 5 });
    expect(await destination.nextFlow()).toMatchObject({ peer: source.uid, sourceBytes: 5, destBytes: 5 });
    expect([...source.flows.states(), ...destination.flows.states()]).toEqual([]);
  });

  it("are refused, and revoked, by the same grants", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    await rig.direct(source, destination);
    const client = aClient(port);
    await says(client, "hello");
    destination.meet([source.peer]);
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "not-granted" });
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters()).toMatchObject({ errors: { "not-granted": 1 }, refusals: { "not-granted": 1 } });
    destination.meet([]);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters().refusals).toEqual({ "not-granted": 2 });
  });

  it("end with the hop, and with the peer", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    const session = await rig.direct(source, destination);
    const first = aClient(port);
    await says(first, "hello");
    session.destroy();
    expect(await fateOf(first)).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "tunnel-lost" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "tunnel-lost" });
    await rig.direct(source, destination);
    const second = aClient(port);
    await says(second, "hello");
    source.meet([]);
    expect(await fateOf(second)).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "removed" });
    await waitFor("nothing is left there", () => destination.plane.activeFlows === 0);
  });

  it("are refused beyond the limit of the hop, and none waits indefinitely", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    await rig.direct(source, destination);
    const clients = Array.from({ length: 300 }, () => aClient(port));
    await Promise.all(
      clients.map((client) => {
        client.socket.write("x");
        return waitFor("an echo or a reset", () => client.text() === "x" || client.fate() !== undefined);
      }),
    );
    expect(source.counters()).toMatchObject({ activeFlows: 256, refusals: { "too-many-flows": 44 } });
    clients.find((client) => client.text() === "x")?.socket.destroy();
    await waitFor("there is room", () => source.counters().activeFlows === 255);
    await says(aClient(port), "later");
  });

  it("use another gateway while this node's own path there is down, and report the reason if there is none", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    await rig.direct(source, destination);
    rig.breakDirect(source, destination, "connect-timeout");
    await says(aClient(port), "hello");
    expect(rig.splices).toHaveLength(1);
    rig.refusal = "peer-absent";
    rig.splices[0]?.[0].destroy();
    await waitFor("it is cut", () => source.plane.activeFlows === 0);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(Object.keys(source.counters().refusals)).toEqual(["connect-timeout"]);
    rig.breakDirect(source, destination, "too-many-flows");
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters().refusals).toMatchObject({ "too-many-flows": 1 });
  });

  it("carry datagrams, echoes and uploads", async () => {
    const { rig, source, destination } = await remoteService(echo);
    await rig.direct(source, destination);
    const backend = await aPeer(echoDatagram);
    const port = await freeUdpPort();
    await destination.apply([], [aService("dns", backend.port, { protocol: "udp" })]);
    await source.apply([aListener(port, { peer: destination.uid, service: "dns" }, { protocol: "udp" })]);
    destination.meet([source.peer], [grant(source, "dns", "udp")]);
    const client = await aPeer();
    client.socket.send("hello", port, "127.0.0.1");
    await waitFor("the echo", () => client.received.includes("hello"));
    const { measure } = source.flows;
    expect(await measure.echo({ peer: destination.uid, bytes: 1000, timeoutMs: 60_000 })).toMatchObject({
      gateway: destination.uid,
    });
    const { bytes } = await measure.perf({
      peer: destination.uid,
      bytes: 1_000_000,
      messageBytes: 1000,
      windowBytes: 65_536,
      signal: new AbortController().signal,
      onProgress: () => undefined,
    });
    expect(bytes).toBe(1_000_000);
    expect(rig.splices).toEqual([]);
  });
});
