import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createSocket } from "node:dgram";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { aTftpd, aVsftpd } from "../../support/data-store/file-servers.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  endProcess,
  isServed,
  startL4Stage,
  talk,
  untilRefused,
  type L4Stage,
} from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { untilOnline, untilReason } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const run = promisify(execFile);
const onFinished = fileEnd();
let stage: L4Stage;

/** Each test but the last leaves its node without connectors and services. */
beforeAll(async () => {
  stage = await startL4Stage(tempDir(onFinished), { onFinished });
});

async function refuses(stage: L4Stage, method: string, path: string, body: unknown, status: number): Promise<unknown> {
  const at = path.startsWith("v2/") ? `/v2/node/${stage.uid}/${path.slice(3)}` : `/node/${stage.uid}/${path}`;
  const answer = await stage.controller.call(method, at, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(status);
  return answer.body;
}

test("a service and a connector carry traffic, item by item, and an upgrade to V2 cuts no flow", async () => {
  const [target, other, port, second] = [await aServer(echo), await aServer(echo), await freePort(), await freePort()];
  const web = { name: "web", protocol: "tcp", host: "127.0.0.1", port: target };
  const entry = { node: "local", service: "web", protocol: "tcp", port, localIp: "127.0.0.1" };

  // The complete legacy form.
  await stage.call("PUT", "config/services", { services: [{ id: randomUUID(), ...web }] });
  await stage.call("PUT", "config/connectors", { connectors: [{ id: randomUUID(), ...entry }] });
  await waitFor("it is served", () => isServed(port));
  const flow = aClient(port);
  await talk(flow, "legacy");
  await refuses(stage, "POST", "v2/config/connectors", { ...entry, port: second }, 422);

  await stage.call("POST", "v2/config/connectors/upgrade");
  await stage.call("POST", "v2/config/services/upgrade");
  await refuses(stage, "POST", "v2/config/connectors/upgrade", undefined, 422);
  await refuses(stage, "PUT", "config/connectors", { connectors: [] }, 422);
  await stage.untilNamed({});
  await talk(flow, "upgraded");

  // Adds, changes and removes one more, beside a flow that is not affected.
  const id = await stage.create("connectors", { ...entry, port: second });
  await waitFor("the second is served", () => isServed(second));
  await refuses(stage, "POST", "v2/config/connectors", { ...entry, port: second }, 422);
  const api = await stage.create("services", { ...web, name: "api", port: other });
  await stage.call("PUT", `v2/config/connectors/${id}`, { ...entry, port: second, service: "api", maxmbps: 100 });
  await stage.untilNamed({});
  const cut = aClient(second);
  await talk(cut, "api");
  await stage.call("DELETE", `v2/config/services/${api}`);
  await waitFor("flows to a service that is gone end", () => cut.fate() !== undefined);
  await stage.untilNamed({ [`connectors.items.${id}`]: "unknown-service" });
  expect(stage.applied()).toMatchObject({ outcome: "partial", sections: { connectors: { state: "pending" } } });
  await stage.call("DELETE", `v2/config/connectors/${id}`);
  await stage.untilNamed({});
  expect(stage.applied()?.outcome).toBe("converged");
  await untilRefused(second);
  await talk(flow, "untouched");

  // The same again has no steps.
  const { steps = 0 } = stage.applied()?.sections.connectors ?? {};
  expect(steps).toBe(1);
  const datagrams = createSocket("udp4").on("message", (text, { port }) => datagrams.send(text, port, "127.0.0.1"));
  await new Promise<void>((resolve) => datagrams.bind(0, "127.0.0.1", resolve));
  const asker = createSocket("udp4");
  onTestFinished(() => [datagrams, asker].forEach((socket) => socket.close()));
  let answer = "";
  asker.on("message", (text) => (answer = text.toString()));
  const dns = { name: "dns", protocol: "udp", host: "127.0.0.1", port: datagrams.address().port };
  await stage.create("services", dns);
  await stage.create("connectors", { ...entry, service: "dns", protocol: "udp" });
  await waitFor("a datagram comes back", () => {
    asker.send("who?", port, "127.0.0.1");
    return answer === "who?";
  });
  await stage.untilNamed({});

  await stage.call("DELETE", "config/connectors");
  await waitFor("flows of a connector that is gone end", () => flow.fate() !== undefined);
  await stage.call("DELETE", "config/services");
  await stage.untilNamed({});
});

test("a node serves FTP and TFTP as its configuration says", async () => {
  const dir = tempDir();
  const [files, boot] = [await aVsftpd(dir), await aTftpd(dir)];
  const at = { host: "127.0.0.1" };
  await stage.create("services", { name: "files", protocol: "ftp", port: files.port, ...at });
  await stage.create("services", { name: "boot", protocol: "tftp", port: boot.port, ...at });
  const [ftpPort, tftpPort, wrong] = [await freePort(), await freePort(), await freePort()];
  const connect = (protocol: string, service: string, port: number): Promise<string> =>
    stage.create("connectors", { node: "local", localIp: "127.0.0.1", protocol, service, port });
  await connect("ftp", "files", ftpPort);
  await connect("tftp", "boot", tftpPort);
  const mismatched = await connect("tcp", "files", wrong);
  await stage.untilNamed({ [`connectors.items.${mismatched}`]: "protocol-mismatch" });
  writeFileSync(join(boot.root, "loader"), "boot me");
  writeFileSync(join(files.root, "upload/note"), "read me");
  const fetched = async (url: string): Promise<string> =>
    (await run("curl", ["--silent", "--show-error", "--max-time", "20", "--no-ftp-skip-pasv-ip", url])).stdout;
  expect(await fetched(`ftp://127.0.0.1:${ftpPort}/upload/note`)).toBe("read me");
  expect(await fetched(`tftp://127.0.0.1:${tftpPort}/loader`)).toBe("boot me");
  for (const section of ["connectors", "services"]) await stage.call("DELETE", `config/${section}`);
  await stage.untilNamed({});
});

test("an inactive or deleted node serves nothing, also after restarts, and everything again once it is active", async () => {
  const port = await freePort();
  await stage.create("services", { name: "web", protocol: "tcp", host: "127.0.0.1", port: await aServer(echo) });
  await stage.create("connectors", { node: "local", service: "web", protocol: "tcp", port });
  await waitFor("it is served", () => isServed(port));
  const flow = aClient(port);
  await talk(flow, "active");
  const speedTest = (): Promise<unknown> =>
    stage.controller.call("POST", `/node/${stage.uid}/trigger/speed-test?wait=1`, {}).then(({ body }) => body);

  await stage.call("PUT", "", { state: "INACTIVE" });
  await waitFor("the flow is cut", () => flow.fate() !== undefined);
  await untilRefused(port);
  await stage.untilNamed({});
  expect(await stage.why()).toMatchObject([{ section: "node", code: "inactive", notice: true }]);
  expect(await speedTest()).toEqual([expect.stringContaining("INACTIVE")]);

  await stage.agent.end("SIGKILL");
  await stage.startAgain();
  await untilOnline(stage.agent);
  expect(await speedTest()).toEqual([expect.stringContaining("INACTIVE")]);
  const before = stage.overlayPid();
  endProcess(before);
  await waitFor("another overlay", () => stage.overlayPid() !== before);
  await stage.untilNamed({});
  await untilRefused(port);

  await stage.call("PUT", "", { state: "ACTIVE" });
  await waitFor("it is served again", () => isServed(port));

  await stage.controller.call("DELETE", `/node/${stage.uid}`);
  await untilReason(stage.agent, ["deleted"]);
  await untilRefused(port);
  expect(await stage.why()).toMatchObject([{ section: "node", code: "deleted" }]);
  await stage.agent.end("SIGKILL");
  await stage.startAgain();
  const { nodeState, deletedAt } = await stage.agent.status();
  expect([nodeState, typeof deletedAt]).toEqual(["INACTIVE", "number"]);
  expect(await isServed(port)).toBe(false);
});
