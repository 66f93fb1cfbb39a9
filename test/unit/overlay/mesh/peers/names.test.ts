import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { aClient, aListener, aService } from "../../../../support/overlay/overlay-rig.ts";
import { grant, peerRig } from "../../../../support/overlay/peer-rig.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

/** A server that sends its name first, and then echoes. */
async function aNamed(name: string, host: string, port: number): Promise<Server> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined).write(`${name} `);
    socket.pipe(socket);
  });
  server.listen(port, host);
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return server;
}

it("a service with a name follows it to a new address, and running flows stay", async () => {
  const rig = peerRig();
  const clock = new FakeClock();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2, { clock })]);
  const [target, port] = [await freePort(), await freePort()];
  await aNamed("old", "127.0.0.1", target);
  const second = await aNamed("new", "127.0.0.2", target);
  rig.names.set("db.example", ["127.0.0.1"]);
  await destination.apply([], [aService("db", target, { host: "db.example" })]);
  await source.apply([aListener(port, { peer: destination.uid, service: "db" })]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "db")]);
  /** Returns the server of a new flow; none if it is refused. */
  const reached = async () => {
    const client = aClient(port);
    await waitFor("an answer or an end", () => client.text() !== "" || client.fate() !== undefined);
    return { client, name: client.text().trim() };
  };

  const first = await reached();
  expect(first.name).toBe("old");
  rig.names.set("db.example", ["127.0.0.2"]);
  expect((await reached()).name, "its time to live is not over").toBe("old");
  await clock.advance(30_000);
  expect((await reached()).name).toBe("new");
  first.client.socket.write("still here");
  await waitFor("the first one's echo", () => first.client.text() === "old still here");

  // A refusing address is not cached for its time to live.
  second.close();
  rig.names.set("db.example", ["127.0.0.1"]);
  expect((await reached()).name).toBe("");
  await clock.advance(5000);
  expect((await reached()).name).toBe("old");
});

/** A UDP server that answers everything with its name. */
async function aNamedUdp(name: string, host: string, port: number): Promise<Socket> {
  const socket = createSocket("udp4");
  socket.on("message", (_, from) => socket.send(name, from.port, from.address)).bind(port, host);
  await once(socket, "listening");
  return socket;
}

it("resolves the name of a UDP service again when its address refuses", async () => {
  const rig = peerRig();
  const clock = new FakeClock();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2, { clock })]);
  const [target, port] = [await freePort(), await freePort()];
  const first = await aNamedUdp("old", "127.0.0.1", target);
  const second = await aNamedUdp("new", "127.0.0.2", target);
  onTestFinished(() => void second.close());
  rig.names.set("dns.example", ["127.0.0.1"]);
  await destination.apply([], [aService("dns", target, { host: "dns.example", protocol: "udp" })]);
  await source.apply([aListener(port, { peer: destination.uid, service: "dns" }, { protocol: "udp" })]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "dns", "udp")]);
  const client = createSocket("udp4");
  onTestFinished(() => void client.close());
  const received: string[] = [];
  client.on("message", (data) => void received.push(data.toString()));
  /** Sends until there is an answer, since datagrams may be lost. */
  const requested = (name: string) =>
    waitFor(`an answer of ${name}`, async () => {
      client.send("?", port, "127.0.0.1");
      await clock.advance(100);
      return received.includes(name);
    });
  await requested("old");
  first.close();
  rig.names.set("dns.example", ["127.0.0.2"]);
  await requested("new");
  expect(clock.elapsed()).toBeLessThan(30_000);
});
