import { createServer, type Server } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { isServed, startL4Stage, talk } from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo, makeSilent } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A foreign server, which serves until closed. */
async function aStranger(port: number): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => echo(socket.on("error", () => undefined)));
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return server;
}

/** Returns the end of a new connection that sends data. */
async function fateOf(port: number): Promise<string | undefined> {
  const client = aClient(port);
  client.socket.write("?");
  await waitFor("a fate", () => client.fate() !== undefined);
  return client.fate();
}

test("names what one connector lacks, recovers by itself, and the others continue", async () => {
  const stage = await startL4Stage(tempDir());
  const ports = await Promise.all(Array.from({ length: 11 }, freePort));
  const [good = 0, taken = 0, loop = 0, shared = 0, down = 0, refused = 0, hung = 0, reset = 0, lost = 0] = ports;
  const [closed = 0, silent = 0] = ports.slice(9);
  const stranger = await aStranger(taken);
  await makeSilent("127.0.0.1", silent);
  const resetting = await aServer((socket) => socket.once("data", () => socket.resetAndDestroy()));
  const check = { interval: 1, failures: 1, successes: 1 };
  // Services in the legacy form, connectors as V2: each section has its own form.
  const service = (name: string, port: number, more = {}) => ({
    id: crypto.randomUUID(),
    name,
    protocol: "tcp",
    host: "127.0.0.1",
    port,
    connectTimeout: 1,
    ...more,
  });
  const services = [
    service("web", await aServer(echo)),
    service("down", closed, { healthCheck: check }),
    service("refused", closed),
    service("hung", silent),
    service("reset", resetting),
    service("files", closed, { protocol: "ftp" }),
  ];
  await stage.call("PUT", "config/services", { services });
  const lo = { localIp: "127.0.0.1" };
  const connect = (port: number, more = {}, at: Readonly<Record<string, string>> = lo): Promise<string> =>
    stage.create("connectors", { node: "local", service: "web", protocol: "tcp", port, ...at, ...more });
  await connect(good);
  await waitFor("the good one serves", () => isServed(good));
  const flow = aClient(good);
  await talk(flow, "before");

  const barred = await connect(taken);
  const looping = await connect(loop, { service: `127.0.0.1:${loop}` });
  const first = await connect(shared);
  const second = await connect(shared, {}, { nic: "lo" });
  await connect(down, { service: "down" });
  await connect(refused, { service: "refused" });
  await connect(hung, { service: "hung" });
  await connect(reset, { service: "reset" });
  const nowhere = await connect(lost, { service: "no-such" });
  const files = await connect(lost, { service: "files", localIp: "127.0.0.2" });
  const elsewhere = await connect(lost, { node: "elsewhere", localIp: "127.0.0.3" });
  const lasting = {
    [`connectors.items.${files}`]: "protocol-mismatch",
    [`connectors.items.${elsewhere}.node`]: "unknown-node",
    [`connectors.items.${nowhere}`]: "unknown-service",
  };
  const faults = {
    ...lasting,
    [`connectors.items.${barred}`]: "address-in-use",
    [`connectors.items.${looping}`]: "loop",
    [`connectors.items.${second}.port`]: "E_PORT_IN_USE",
    "services.services.1": "service-down",
  };
  await stage.untilNamed(faults);
  await stage.untilShadowNames(faults);
  expect(stage.applied()).toMatchObject({
    outcome: "partial",
    sections: { services: { state: "pending" }, connectors: { state: "pending" } },
  });
  expect((await stage.why()).find(({ code }) => code === "address-in-use")?.nextAttempt).toBeGreaterThan(
    Date.now() - 5000,
  );

  // Clients of one that cannot serve are refused at once; the others serve.
  const fates = await Promise.all([loop, down, refused, hung, reset, lost].map(fateOf));
  expect(new Set(fates)).toEqual(new Set(["ECONNRESET"]));
  expect(await isServed(shared)).toBe(true);
  await talk(flow, "between");

  // Each cause ends, without any other action.
  stranger.close();
  await aStranger(closed);
  await stage.call("DELETE", `v2/config/connectors/${looping}`);
  await stage.call("DELETE", `v2/config/connectors/${first}`);
  await stage.untilNamed(lasting);
  for (const port of [taken, shared, down, refused]) expect(await isServed(port)).toBe(true);
  expect(flow.fate()).toBeUndefined();
  await talk(flow, "after");
});
