import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { describe, expect, it, onTestFinished } from "vitest";
import { isTransferRequest } from "../../../../src/overlay/udp/tftp.ts";
import { aListener, aService, planeRig } from "../../../support/overlay/overlay-rig.ts";
import { grant, peerRig } from "../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../support/wait-for.ts";

const REQUEST = "\0\x01file\0octet\0";
const BLOCK = "\0\x03\0\x01data";
const ACK = "\0\x04\0\x01";

interface Party {
  readonly socket: Socket;
  readonly port: number;
  readonly received: { readonly text: string; readonly from: RemoteInfo }[];
  send(text: string | Buffer, port: number, host?: string): void;
}

async function aParty(onHeard?: (from: RemoteInfo) => void, host = "127.0.0.1"): Promise<Party> {
  const socket = createSocket("udp4").on("error", () => undefined);
  const received: { text: string; from: RemoteInfo }[] = [];
  socket.on("message", (datagram, from) => {
    received.push({ text: datagram.toString("latin1"), from });
    onHeard?.(from);
  });
  await new Promise<void>((resolve) => socket.bind(0, host, resolve));
  onTestFinished(() => void socket.close());
  const send: Party["send"] = (text, port, to = "127.0.0.1") => socket.send(text, port, to);
  return { socket, port: socket.address().port, received, send };
}

async function freeUdpPort(): Promise<number> {
  const socket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  const { port } = socket.address();
  await new Promise<void>((resolve) => socket.close(resolve));
  return port;
}

const common = { protocol: "udp", application: "tftp", idleTimeoutMs: 60_000 } as const;

/** A connector to a server that only listens, on this node or on another one. */
const stages = {
  async here(server: number) {
    const rig = planeRig();
    const port = await freeUdpPort();
    await rig.apply([aListener(port, { service: "boot" }, common)], [aService("boot", server, common)]);
    return { rig, port: port, far: rig };
  },
  async "on another node"(server: number) {
    const mesh = peerRig();
    const [rig, far] = await Promise.all([mesh.node(1), mesh.node(2)]);
    const port = await freeUdpPort();
    await far.apply([], [aService("boot", server, common)]);
    await rig.apply([aListener(port, { peer: far.uid, service: "boot" }, common)]);
    rig.meet([far.peer]);
    far.meet([rig.peer], [grant(rig, "boot", "udp")]);
    return { rig, port: port, far };
  },
};
const where = Object.entries(stages);

describe("a transfer", () => {
  it.each(where)("has a port of its own at both ends, from the first answer on: %s", async (_, stage) => {
    const server = await aParty();
    const { rig, port, far } = await stage(server.port);
    const client = await aParty();
    client.send(REQUEST, port);
    const requested = await waitFor("the request", () => server.received[0]);
    expect(requested.text).toBe(REQUEST);
    const [own, late] = [await aParty(), await aParty()];
    own.send(BLOCK, requested.from.port);
    const block = await waitFor("the answer", () => client.received[0]);
    expect(block.text).toBe(BLOCK);
    expect(block.from.port).not.toBe(port);
    late.send("late", requested.from.port);
    client.send(ACK, block.from.port);
    const ack = await waitFor("the acknowledgement", () => own.received[0]);
    expect(ack).toMatchObject({ text: ACK, from: { port: requested.from.port } });
    expect([server.received.length, late.received.length, client.received.length]).toEqual([1, 0, 1]);
    await rig.apply([]);
    await far.apply([]);
    const moved = { sourceBytes: REQUEST.length + ACK.length, destBytes: BLOCK.length };
    const { backend, destIp, destPort, ...record } = await far.nextFlow();
    expect(record).toMatchObject(moved);
    expect(far === rig ? backend : { ip: destIp, port: destPort }).toEqual({ ip: "127.0.0.1", port: own.port });
    if (far !== rig) expect(await rig.nextFlow()).toMatchObject(moved);
  });

  it.each(where)("sends an address that never answered at most a few blocks: %s", async (_, stage) => {
    const server = await aParty((from) => {
      for (let i = 0; i < 10; i += 1) server.send(Buffer.alloc(516), from.port);
    });
    const { port } = await stage(server.port);
    const client = await aParty();
    client.send(REQUEST, port);
    await waitFor("the first blocks", () => client.received.length === 2);
    client.send(ACK, client.received[0]?.from.port ?? 0);
    await waitFor("everything once it answered", () => client.received.length === 12);
  });

  it("starts again with another request from the same port, and a repeated one is the same", async () => {
    const server = await aParty();
    const { rig, port } = await stages.here(server.port);
    const client = await aParty();
    client.send(REQUEST, port);
    client.send(REQUEST, port);
    await waitFor("both arrive", () => server.received.length === 2);
    expect(server.received[0]?.from.port).toBe(server.received[1]?.from.port);
    server.send(BLOCK, server.received[0]?.from.port ?? 0);
    const first = await waitFor("the answer", () => client.received[0]);
    client.send(REQUEST, port);
    const again = await waitFor("it is asked again", () => server.received[2]);
    expect(again.from.port).not.toBe(server.received[0]?.from.port);
    server.send(BLOCK, again.from.port);
    const second = await waitFor("the other answer", () => client.received[1]);
    expect(second.from.port).not.toBe(first.from.port);
    expect(rig.counters()).toMatchObject({ flows: 2, activeFlows: 1 });
    expect((await rig.nextFlow()).reason).toBeUndefined();
  });

  it("starts and continues only with valid packets", async () => {
    const server = await aParty();
    const { rig, port } = await stages.here(server.port);
    const client = await aParty();
    for (const text of ["", "\0\x01", ACK, BLOCK, "hello"]) client.send(text, port);
    await waitFor("all are dropped", () => rig.counters().datagramsDropped === 5);
    expect(rig.counters().flows).toBe(0);

    client.send(REQUEST, port);
    const requested = await waitFor("the request", () => server.received[0]);
    const elsewhere = await aParty(undefined, "127.0.0.2");
    elsewhere.send("forged", requested.from.port);
    await waitFor("it is dropped", () => rig.counters().datagramsDropped === 6);
    server.send(BLOCK, requested.from.port);
    const block = await waitFor("the answer", () => client.received[0]);
    expect(block.text).toBe(BLOCK);
    const stranger = await aParty();
    stranger.send(ACK, block.from.port);
    client.send(ACK, port);
    await waitFor("both are dropped", () => rig.counters().datagramsDropped === 8);
    expect(server.received).toHaveLength(1);
  });

  it("closes its sockets", async () => {
    const server = await aParty((from) => server.send(BLOCK, from.port));
    // A reserve, the listener's, and those of one transfer.
    const rig = planeRig({ descriptorLimit: 64 + 2 + 2 });
    const near = await freeUdpPort();
    const listener = aListener(near, server.port, {
      ...common,
      idleTimeoutMs: 1000,
    });
    await rig.apply([listener]);
    const [client, other] = [await aParty(), await aParty()];
    client.send(REQUEST, near);
    await waitFor("the answer", () => client.received.length === 1);
    other.send(REQUEST, near);
    await waitFor("a refusal", () => rig.counters().refusals["out-of-resources"] === 1);
    await waitFor("the first is over", () => rig.counters().activeFlows === 0);
    other.send(REQUEST, near);
    await waitFor("the other is served", () => other.received.length === 1);
  });
});

describe("a request for a transfer", () => {
  it.each([
    ["\0\x01f\0", true],
    ["\0\x02f\0", true],
    ["\0\x03f\0", false],
    ["\x01\x01f\0", false],
    ["\0\x01", false],
    ["", false],
  ])("is recognized by its first bytes: %j", (text, expected) => {
    expect(isTransferRequest(Buffer.from(text, "latin1"))).toBe(expected);
  });
});
