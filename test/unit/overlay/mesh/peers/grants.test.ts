import { describe, expect, it } from "vitest";
import { grantsOf, literalOf } from "../../../../../src/overlay/mesh/peers/grants.ts";
import { isForbidden } from "../../../../../src/lib/forbidden-address.ts";
import type { OverlayMesh } from "../../../../../src/protocol/overlay-mesh.ts";
import { aClient, aListener, aService, echo, type Client } from "../../../../support/overlay-rig.ts";
import { grant, remoteService, type RemoteService } from "../../../../support/peer-rig.ts";
import { freePort } from "../../../../support/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const fateOf = (client: Client): Promise<string> => waitFor("the client hears of its end", () => client.fate());

async function says(client: Client, text: string): Promise<void> {
  client.socket.write(text);
  await waitFor(`an echo of ${text}`, () => client.text().endsWith(text));
}

/** Asks for a target by a connector of its own and tells why it was refused, at both ends. */
async function refused(stage: RemoteService, target: { service: string } | { host: string; port: number }) {
  const { source, destination } = stage;
  const port = await freePort();
  const listener = aListener(port, { peer: destination.uid, ...target });
  await source.apply([listener]);
  expect(await fateOf(aClient(port))).toBe("ECONNRESET");
  const near = await source.nextFlow();
  const far = await destination.nextFlow();
  expect(source.counters().refusals).toEqual({ [String(near.reason)]: 1 });
  const { id, connector, service, sourceIp, sourcePort } = near;
  expect(near).toMatchObject({ peer: destination.uid, sourceBytes: 0, destBytes: 0, destPort: port });
  expect(far).toMatchObject({ peer: source.uid, listener: "", id, connector, service, sourceIp, sourcePort });
  return [near.reason, far.reason];
}

describe("a flow from another node", () => {
  it("is refused with its reason at both ends", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    const dead = await freePort();
    await destination.apply(
      [],
      [
        aService("web", stage.target),
        aService("secret", stage.target),
        aService("dead", dead),
        aService("datagrams", stage.target, { protocol: "udp" }),
        aService("nowhere", stage.target, { host: "no-such-name.invalid" }),
        aService("sourceless", stage.target, { lacksSource: true }),
      ],
    );
    const granted = [
      "web",
      "dead",
      "absent",
      "datagrams",
      "nowhere",
      "sourceless",
      `169.254.169.254:80`,
      "224.0.0.1:80",
    ];
    destination.meet(
      [source.peer],
      granted.map((name) => grant(source, name)),
    );
    const twice = (reason: string): string[] => [reason, reason];
    expect(await refused(stage, { service: "secret" })).toEqual(twice("not-granted"));
    expect(await refused(stage, { service: "absent" })).toEqual(twice("unknown-service"));
    expect(await refused(stage, { service: "dead" })).toEqual(twice("connect-refused"));
    expect(await refused(stage, { service: "datagrams" })).toEqual(twice("protocol-mismatch"));
    expect(await refused(stage, { service: "nowhere" })).toEqual(twice("resolve-failed"));
    expect(await refused(stage, { service: "sourceless" })).toEqual(twice("unreachable"));
    expect(await refused(stage, { host: "127.0.0.1", port: stage.target })).toEqual(twice("not-granted"));
    expect(await refused(stage, { host: "169.254.169.254", port: 80 })).toEqual(twice("not-granted"));
    expect(await refused(stage, { host: "224.0.0.1", port: 80 })).toEqual(twice("not-granted"));
    expect(stage.rig.splices).toHaveLength(1);
  });

  it("reaches a literal address that is granted, and nothing this node listens on itself", async () => {
    const stage = await remoteService(echo);
    const { source, destination, target } = stage;
    const own = await freePort();
    await destination.apply([aListener(own, target)]);
    destination.meet([source.peer], [grant(source, `127.0.0.1:${target}`), grant(source, `127.0.0.1:${own}`)]);
    expect(await refused(stage, { host: "127.0.0.1", port: own })).toEqual(["loop", "loop"]);
    const port = await freePort();
    await source.apply([aListener(port, { peer: destination.uid, host: "127.0.0.1", port: target })]);
    await says(aClient(port), "hello");
  });

  it("is refused when a session that is shared asks in another's name", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    // Granted to somebody else alone.
    destination.meet([source.peer], [{ ...grant(source, "web"), source: destination.uid }]);
    expect(await refused(stage, { service: "web" })).toEqual(["not-granted", "not-granted"]);
  });

  it.each<[string, string, (stage: RemoteService) => unknown]>([
    ["its grant goes", "not-granted", ({ source, destination }) => destination.meet([source.peer], [])],
    ["its peer goes", "removed", ({ destination }) => destination.meet([])],
    ["its service goes", "removed", ({ destination }) => destination.apply([], [])],
    [
      "its service leads elsewhere",
      "removed",
      async ({ destination }) => destination.apply([], [aService("web", await freePort())]),
    ],
  ])("ends at once when %s", async (_, reason, revoke) => {
    const stage = await remoteService(echo);
    const { source, destination, port } = stage;
    const clients = [aClient(port), aClient(port)];
    for (const client of clients) await says(client, "hello");
    await revoke(stage);
    expect(destination.plane.activeFlows).toBe(0);
    for (const client of clients) expect(await fateOf(client)).toBe("ECONNRESET");
    for (let i = 0; i < 2; i += 1) {
      expect(await destination.nextFlow()).toMatchObject({ reason, sourceBytes: 5, destBytes: 5 });
      const heard = (await source.nextFlow()).reason;
      expect([reason, "tunnel-lost"]).toContain(heard);
    }
    await waitFor("nothing is left", () => source.plane.activeFlows === 0);
  });

  it("goes on through a new document that grants it as before", async () => {
    const stage = await remoteService(echo);
    const { source, destination, port } = stage;
    const client = aClient(port);
    await says(client, "hello");
    destination.meet([source.peer], [grant(source, "other"), grant(source, "web")]);
    source.meet([destination.peer]);
    await says(client, "still");
    expect(stage.rig.splices).toHaveLength(1);
  });

  it("ends at once when the source does not know the destination any more", async () => {
    const { source, destination, port } = await remoteService(echo);
    const client = aClient(port);
    await says(client, "hello");
    source.meet([]);
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "removed" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "removed" });
    await waitFor("the sessions are gone", () => destination.flows.states().length === 0);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters().refusals).toEqual({ "peer-absent": 1 });
  });

  it("loses its session when the key of its peer changes", async () => {
    const { source, destination, port } = await remoteService(echo);
    const client = aClient(port);
    await says(client, "hello");
    destination.meet([{ ...source.peer, key: destination.peer.key }], [grant(source, "web")]);
    expect(await fateOf(client)).toBe("ECONNRESET");
  });
});

describe("grants", () => {
  it("hold for exactly the source, the service and the protocol", () => {
    const grants: OverlayMesh["grants"] = [{ source: "a", service: "web", protocol: "tcp" }];
    const granted = grantsOf(grants);
    expect(granted.has("a", "web", "tcp")).toBe(true);
    expect(granted.has("b", "web", "tcp")).toBe(false);
    expect(granted.has("a", "web", "udp")).toBe(false);
    expect(granted.has("a", "we", "tcp")).toBe(false);
    expect(granted.has("a tcp", "web", "tcp")).toBe(false);
  });

  it.each([
    "169.254.169.254",
    "169.254.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "fe80::1",
    "fe80::1%eth0",
    "224.0.0.251",
    "239.255.255.250",
    "255.255.255.255",
    "ff02::1",
    "0.0.0.0",
    "::",
    "0.1.2.3",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "example.com",
    "",
  ])("never lead to %s", (address) => expect(isForbidden(address)).toBe(true));

  it.each(["10.0.0.1", "192.168.1.1", "172.16.5.20", "127.0.0.1", "8.8.8.8", "fd00::1", "2001:db8::1"])(
    "may lead to %s",
    (address) => expect(isForbidden(address)).toBe(false),
  );

  it("tell a literal from a name", () => {
    expect(literalOf("10.0.0.1:80")).toEqual({ host: "10.0.0.1", port: 80 });
    expect(literalOf("2001:db8::1:443")).toEqual({ host: "2001:db8::1", port: 443 });
    for (const name of ["web", "10.0.0.1", "web:80", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:8x", "fe80::1%e:80", ""])
      expect(literalOf(name)).toBeUndefined();
  });
});
