import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, isIP, type AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, expect, it, onTestFinished } from "vitest";
import { grantsOf, literalOf } from "../../../../../src/overlay/mesh/peers/grants.ts";
import { isForbidden } from "../../../../../src/lib/net/forbidden-address.ts";
import type { MeshLiterals, OverlayMesh } from "../../../../../src/protocol/overlay/mesh.ts";
import { aClient, aListener, aService, echo, type Client } from "../../../../support/overlay/overlay-rig.ts";
import { grant, remoteService, type RemoteService } from "../../../../support/overlay/peer-rig.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const fateOf = (client: Client): Promise<string> => waitFor("the client hears of its end", () => client.fate());

async function says(client: Client, text: string): Promise<void> {
  client.socket.write(text);
  await waitFor(`an echo of ${text}`, () => client.text().endsWith(text));
}

/** Requests a target by a connector of its own and returns the reason of its refusal, at both ends. */
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

const OWN: MeshLiterals = { allow: ["127.0.0.1"], own: true };

/** This machine's own addresses except loopback and link-local ones, as listed by the runtime. */
function ownAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((link) => link ?? []);
  return all.filter(({ internal, address }) => !internal && !isForbidden(address)).map(({ address }) => address);
}

/** A server at every address of this machine. */
async function anyServer(protocol: "tcp" | "udp"): Promise<{ readonly port: number }> {
  if (protocol === "udp") {
    const socket = createSocket({ type: "udp6" }).bind(0, "::");
    onTestFinished(() => void socket.close());
    await once(socket, "listening");
    return socket.address();
  }
  const server = createServer((socket) => socket.on("error", () => undefined)).listen(0, "::");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return server.address() as AddressInfo;
}

/** Opens a flow and returns the result: opened, or the reason of the refusal. */
function answerOf(
  { source, destination }: RemoteService,
  protocol: "tcp" | "udp",
  label: string,
  isQuestion = false,
): Promise<string> {
  const target = { peer: destination.uid, label };
  const client = { ip: "127.0.0.1", port: 1 };
  return new Promise((resolve) => {
    source.flows.remote.dial(
      { target, protocol, client, ...(isQuestion ? { isQuestion } : {}) },
      {
        opened(stream) {
          stream.on("error", () => undefined).close();
          resolve("opened");
        },
        failed: resolve,
      },
    );
  });
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

  it("reaches a granted literal address, and nothing that this node listens on itself", async () => {
    const stage = await remoteService(echo);
    const { source, destination, target } = stage;
    const own = await freePort();
    await destination.apply([aListener(own, target)]);
    destination.meet([source.peer], [grant(source, `127.0.0.1:${target}`), grant(source, `127.0.0.1:${own}`)], OWN);
    expect(await refused(stage, { host: "127.0.0.1", port: own })).toEqual(["loop", "loop"]);
    const port = await freePort();
    await source.apply([aListener(port, { peer: destination.uid, host: "127.0.0.1", port: target })]);
    await says(aClient(port), "hello");
  });

  it.each<[string, MeshLiterals | undefined]>([
    ["without a local policy", undefined],
    ["that the local policy does not list", { allow: ["10.0.0.0/8", "2001:db8::/32"], own: true }],
    ["of the loopback that is listed without being permitted", { allow: ["0.0.0.0/0", "::/0"] }],
  ])("never reaches a literal %s, in any spelling", async (_, literals) => {
    const stage = await remoteService(echo);
    const { source, destination, target } = stage;
    const forms = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1"];
    const grants = forms.map((form) => grant(source, `${form}:${target}`));
    destination.meet([source.peer], grants, literals);
    for (const host of forms) {
      const both = ["literal-not-permitted", "literal-not-permitted"];
      expect(await refused(stage, { host, port: target })).toEqual(both);
    }
  });

  it.each(["tcp", "udp"] as const)(
    "never reaches this machine's own addresses over %s, unless the policy allows it",
    async (protocol) => {
      const own = ownAddresses();
      expect(own).not.toEqual([]);
      const stage = await remoteService(echo);
      const { source, destination } = stage;
      const { port } = await anyServer(protocol);
      const all = own.flatMap((address) => (isIP(address) === 4 ? [address, `::ffff:${address}`] : [address]));
      const grants = all.map((host) => ({ ...grant(source, `${host}:${port}`), protocol }));
      const ask = (host: string) => answerOf(stage, protocol, `${host}:${port}`);
      destination.meet([source.peer], grants, { allow: ["0.0.0.0/0", "::/0"] });
      for (const host of all) expect(await ask(host)).toBe("literal-not-permitted");
      destination.meet([source.peer], grants, { allow: ["0.0.0.0/0", "::/0"], own: true });
      for (const host of own) expect(await ask(host)).toBe("opened");
    },
  );

  it.each<[string, MeshLiterals | undefined]>([
    ["is gone", undefined],
    ["lists other addresses", { allow: ["10.0.0.0/8"], own: true }],
    ["permits no own addresses", { allow: ["0.0.0.0/0"] }],
  ])("ends at once when the policy for literals %s", async (_, literals) => {
    const stage = await remoteService(echo);
    const { source, destination, target } = stage;
    const grants = [grant(source, `127.0.0.1:${target}`)];
    destination.meet([source.peer], grants, OWN);
    const port = await freePort();
    await source.apply([aListener(port, { peer: destination.uid, host: "127.0.0.1", port: target })]);
    const client = aClient(port);
    await says(client, "hello");
    destination.meet([source.peer], grants, literals);
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(await destination.nextFlow()).toMatchObject({ reason: "literal-not-permitted" });
  });

  it("gets the same answer to a query for a literal as for a flow", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    const [host = ""] = ownAddresses();
    destination.meet([source.peer], [grant(source, `${host}:9`)], { allow: ["0.0.0.0/0", "::/0"] });
    expect(await answerOf(stage, "tcp", `${host}:9`, true)).toBe("literal-not-permitted");
    destination.meet([source.peer], [grant(source, `${host}:9`)], { allow: [host], own: true });
    expect(await answerOf(stage, "tcp", `${host}:9`, true)).toBe("opened");
  });

  it("never reaches a reserved address by a name", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    stage.rig.names.set("metadata.example", ["169.254.169.254", "::ffff:169.254.169.254", "224.0.0.1"]);
    const names = aService("named", 80, { host: "metadata.example" });
    await destination.apply([], [names, { ...names, name: "datagrams", protocol: "udp" }]);
    destination.meet([source.peer], [grant(source, "named"), { ...grant(source, "datagrams"), protocol: "udp" }]);
    expect(await answerOf(stage, "tcp", "named")).toBe("not-granted");
    expect(await answerOf(stage, "udp", "datagrams")).toBe("not-granted");
  });

  it("is refused when a shared session requests in another node's name", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    // Granted to another node only.
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
      const received = (await source.nextFlow()).reason;
      expect([reason, "tunnel-lost"]).toContain(received);
    }
    await waitFor("nothing is left", () => source.plane.activeFlows === 0);
  });

  it("continues through a new document with the same grant", async () => {
    const stage = await remoteService(echo);
    const { source, destination, port } = stage;
    const client = aClient(port);
    await says(client, "hello");
    destination.meet([source.peer], [grant(source, "other"), grant(source, "web")]);
    source.meet([destination.peer]);
    await says(client, "still");
    expect(stage.rig.splices).toHaveLength(1);
  });

  it("ends at once when the source no longer knows the destination", async () => {
    const { source, destination, port } = await remoteService(echo);
    const client = aClient(port);
    await says(client, "hello");
    source.meet([]);
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "removed" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "removed" });
    await waitFor("the sessions have ended", () => destination.flows.states().length === 0);
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
  it("apply to exactly the source, the service and the protocol", () => {
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

  it("distinguish a literal from a name", () => {
    expect(literalOf("10.0.0.1:80")).toEqual({ host: "10.0.0.1", port: 80 });
    expect(literalOf("2001:db8::1:443")).toEqual({ host: "2001:db8::1", port: 443 });
    for (const name of ["web", "10.0.0.1", "web:80", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:8x", "fe80::1%e:80", ""])
      expect(literalOf(name)).toBeUndefined();
  });
});
