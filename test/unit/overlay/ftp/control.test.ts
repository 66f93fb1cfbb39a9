import { describe, expect, it } from "vitest";
import type { OverlayListener } from "../../../../src/protocol/overlay/overlay.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { fakeFtp, ftpClient, passivePort } from "../../../support/overlay/fake-ftp.ts";
import {
  aClient,
  aListener,
  aService,
  planeRig,
  type Client,
  type PlaneRig,
} from "../../../support/overlay/overlay-rig.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { waitFor } from "../../../support/wait-for.ts";

const ftp = { application: "ftp" } as const;

async function stage(more: Partial<OverlayListener> = {}, clock?: FakeClock) {
  const rig: PlaneRig = planeRig(clock === undefined ? {} : { clock });
  const server = await fakeFtp();
  const port = await freePort();
  await rig.apply([aListener(port, { service: "files" }, { ...ftp, ...more })], [aService("files", server.port, ftp)]);
  return { rig, server, port, client: await ftpClient(port) };
}

const fateOf = (client: Client): Promise<string> => waitFor("a fate", () => client.fate());

/** Both ends of a data connection that has carried data in each direction. */
async function transfer({ client, server }: Pick<Awaited<ReturnType<typeof stage>>, "client" | "server">) {
  const before = server.data.length;
  const data = aClient(await passivePort(client));
  const end = await waitFor("it arrives", () => server.data[before]);
  end.write("down");
  data.socket.write("up");
  await waitFor("it passes", () => data.text() === "down" && end.bytesRead === 2);
  return { data, end };
}

describe("a data connection", () => {
  it("leads to the service and is counted and recorded, in old and new form", async () => {
    const { rig, server, port, client } = await stage();
    const { data, end } = await transfer({ client, server });
    data.socket.end();
    end.end();
    expect(await rig.nextFlow()).toMatchObject({
      service: "files",
      backend: { ip: "127.0.0.1", port: server.announced.port },
      sourceBytes: 2,
      destBytes: 4,
    });
    client.socket.write("EPSV\r\n");
    const found = await waitFor("the reply", () => /229 .*\(\|\|\|(\d+)\|\)\r\n$/.exec(client.text())?.[1]);
    expect(Number(found)).not.toBe(server.announced.port);
    aClient(Number(found));
    await waitFor("it arrives", () => server.data.length === 2);
    expect(rig.counters(`tcp:${port}`)).toMatchObject({ flows: 3, activeFlows: 2, refusals: {} });
  });

  it("is for the client only, and for one connection", async () => {
    const { server, client } = await stage();
    const port = await passivePort(client);
    expect(await fateOf(aClient(port, "127.0.0.1", "127.0.0.2"))).toBe("ECONNRESET");
    expect(server.data).toHaveLength(0);
    aClient(port);
    await waitFor("the client's own arrives", () => server.data.length === 1);
    expect(await fateOf(aClient(port))).toBe("ECONNREFUSED");
  });

  it("is expected until the next one is requested, or for half a minute", async () => {
    const clock = new FakeClock();
    const { client, rig } = await stage({}, clock);
    const first = await passivePort(client);
    const second = await passivePort(client);
    expect(await fateOf(aClient(first))).toBe("ECONNREFUSED");
    expect(rig.plane.bound()).toHaveLength(2);
    await clock.advance(30_000);
    expect(await fateOf(aClient(second))).toBe("ECONNREFUSED");
    expect(rig.plane.bound()).toHaveLength(1);
  });

  it("does not count as a connection, but at most four run at a time", async () => {
    const { client, server, port } = await stage({ maxFlows: 1 });
    for (let i = 0; i < 4; i += 1) await transfer({ client, server });
    const before = client.text().length;
    client.socket.write("PASV\r\n");
    await waitFor("a refusal", () => client.text().slice(before).startsWith("425 "));
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
  });

  it("ends with a control connection that was cut, and survives one that was closed", async () => {
    const { client, server, port } = await stage();
    const cut = await transfer({ client, server });
    const waiting = await passivePort(client);
    client.socket.resetAndDestroy();
    expect(await fateOf(cut.data)).toBe("ECONNRESET");
    expect(await fateOf(aClient(waiting))).toBe("ECONNREFUSED");

    const again = await ftpClient(port);
    const kept = await transfer({ client: again, server });
    again.socket.end();
    await waitFor("both ends are closed", () => again.socket.destroyed);
    kept.end.end("rest");
    await waitFor("the rest comes", () => kept.data.text() === "downrest" && kept.data.fate() === "end");
  });

  it("keeps its control connection from the idle timeout", async () => {
    const clock = new FakeClock();
    const { client, server, rig } = await stage({ idleTimeoutMs: 10_000 }, clock);
    const { end } = await transfer({ client, server });
    for (let i = 0; i < 20; i += 1) {
      await clock.advance(1000);
      end.write("more");
      await waitFor("it passes", () => rig.counters().bytesOut > 0 && end.writableLength === 0);
    }
    expect(client.fate()).toBeUndefined();
    end.destroy();
    await waitFor("it is over", () => rig.counters().activeFlows === 1);
    for (let i = 0; i < 12; i += 1) await clock.advance(1000);
    expect(await fateOf(client)).toBe("ECONNRESET");
  });

  it("is refused when the process has no free descriptor", async () => {
    const rig = planeRig({ descriptorLimit: 64 + 2 + 2 + 2 });
    const server = await fakeFtp();
    const port = await freePort();
    await rig.apply([aListener(port, { service: "files" }, ftp)], [aService("files", server.port, ftp)]);
    const client = await ftpClient(port);
    client.socket.write("PASV\r\n");
    await waitFor("a refusal", () => client.text().includes("425 "));
    expect(rig.plane.bound()).toHaveLength(1);
  });
});

describe("a control connection", () => {
  it("refuses active mode and TLS", async () => {
    const { client, server } = await stage();
    client.socket.write("PORT 127,0,0,1,9,9\r\nAUTH TLS\r\nSYST\r\n");
    await waitFor("three answers", () => client.text().split("\r\n").length === 5);
    expect(client.text()).toMatch(/^220 hello\r\n502 .*\r\n502 .*\r\n200 ok\r\n$/);
    expect(server.text()).toBe("NOOP\nNOOP\nSYST\n");
  });

  it("is closed when it is not FTP", async () => {
    const { client, rig } = await stage();
    client.socket.write("\x16\x03\x01");
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "protocol-mismatch" });
  });

  it("leads only to services of its own kind", async () => {
    const { rig, port, server } = await stage();
    await rig.apply([aListener(port, { service: "files" }, ftp)], [aService("files", server.port)]);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    await rig.apply([aListener(port, { service: "files" })], [aService("files", server.port, ftp)]);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(rig.counters().refusals).toEqual({ "protocol-mismatch": 2 });
  });
});
