import { describe, expect, it } from "vitest";
import type { RemoteRequest } from "../../../../../src/overlay/listeners/remote.ts";
import type { OverlayReason } from "../../../../../src/protocol/overlay/overlay.ts";
import { fakeFtp, ftpClient, passivePort } from "../../../../support/overlay/fake-ftp.ts";
import { aClient, aListener, aService, type Client } from "../../../../support/overlay/overlay-rig.ts";
import { grant, peerRig, type PeerNode } from "../../../../support/overlay/peer-rig.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const ftp = { application: "ftp" } as const;
const CONTROL = "00000000-0000-4000-8000-00000000000c";

async function stage() {
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  const server = await fakeFtp();
  const port = await freePort();
  const services = ["files", "other"].map((name) => aService(name, server.port, ftp));
  await destination.apply([], [...services, aService("plain", server.port)]);
  await source.apply([aListener(port, { peer: destination.uid, service: "files" }, ftp)]);
  source.meet([destination.peer]);
  destination.meet(
    [source.peer],
    ["files", "other", "plain"].map((name) => grant(source, name)),
  );
  return { source, destination, server, port };
}

/** Sends a request as a peer with any contents; returns the stream or the reason of the refusal. */
function ask(source: PeerNode, peer: string, service: string, more: Partial<RemoteRequest> = {}) {
  const received: Buffer[] = [];
  const outcome = new Promise<OverlayReason | { write: (text: string) => void; destroy: () => void }>((resolve) => {
    source.flows.remote.dial(
      { target: { peer, label: service }, protocol: "tcp", client: { ip: "127.0.0.1", port: 9 }, ...more },
      {
        opened(stream) {
          stream.on("error", () => undefined).on("data", (chunk: Buffer) => received.push(chunk));
          resolve({ write: (text) => void stream.write(text), destroy: () => stream.close(8) });
        },
        failed: resolve,
      },
    );
  });
  return { outcome, text: () => Buffer.concat(received).toString() };
}

/** A control connection of such a peer, and the port that the service announced in it. */
async function askControl(source: PeerNode, peer: string, service = "files") {
  const control = ask(source, peer, service, { application: "ftp", flow: CONTROL });
  const stream = await control.outcome;
  if (typeof stream === "string") throw new Error(stream);
  stream.write("PASV\r\n");
  const [, high, low] = await waitFor("a port", () => /227 .*,(\d+),(\d+)\)\r\n$/.exec(control.text()) ?? undefined);
  return { stream, port: Number(high) * 256 + Number(low) };
}

const fateOf = (client: Client): Promise<string> => waitFor("a fate", () => client.fate());

describe("an FTP service of another node", () => {
  it("has its data connections carried, counted at the source and recorded at both ends", async () => {
    const { source, destination, server, port } = await stage();
    const client = await ftpClient(port);
    const data = aClient(await passivePort(client));
    data.socket.end("up");
    const end = await waitFor("it arrives", () => server.data[0]);
    end.end("down");
    await waitFor("it is over", () => data.fate() === "end" && data.text() === "down");
    const moved = { service: "files", sourceBytes: 2, destBytes: 4 };
    expect(await source.nextFlow()).toMatchObject({ ...moved, peer: destination.uid, connector: `c${port}` });
    const far = await destination.nextFlow();
    expect(far).toMatchObject({ ...moved, peer: source.uid, destIp: "127.0.0.1", destPort: server.announced.port });
    expect(source.counters()).toMatchObject({ flows: 2, activeFlows: 1, refusals: {} });
  });

  it("is reached at ports that it announced, once each, and at nothing else", async () => {
    const { source, destination, server } = await stage();
    const { uid } = destination;
    const { port } = await askControl(source, uid);
    const reach = (to: number, service = "files", control = CONTROL) =>
      ask(source, uid, service, { data: { control, port: to } }).outcome;
    expect(port).toBe(server.announced.port);
    expect(await reach(server.port)).toBe("not-granted");
    expect(await reach(port, "other")).toBe("not-granted");
    expect(await reach(port, "files", "00000000-0000-4000-8000-00000000000d")).toBe("not-granted");
    expect(await reach(port)).toBeTypeOf("object");
    expect(await reach(port)).toBe("not-granted");
    expect(server.data).toHaveLength(1);
    const refused = await waitFor("the records", async () => {
      await destination.nextFlow();
      return destination.ended.length === 4 ? destination.ended : undefined;
    });
    expect(refused.every(({ reason, destIp }) => reason === "not-granted" && destIp === undefined)).toBe(true);
  });

  it("is unreachable after the end of its control connection", async () => {
    const { source, destination } = await stage();
    const { stream, port } = await askControl(source, destination.uid);
    stream.destroy();
    await waitFor("it is over", () => destination.flows.remote.activeFlows === 0);
    expect(await ask(source, destination.uid, "files", { data: { control: CONTROL, port } }).outcome).toBe(
      "not-granted",
    );
  });

  it("loses control and data connections with its grant", async () => {
    const { source, destination, server, port } = await stage();
    const client = await ftpClient(port);
    const data = aClient(await passivePort(client));
    await waitFor("it arrives", () => server.data[0]);
    destination.meet([source.peer], [grant(source, "other")]);
    expect(await Promise.all([client, data].map(fateOf))).toEqual(["ECONNRESET", "ECONNRESET"]);
    expect((await source.nextFlow()).reason).toBe("not-granted");
    expect((await source.nextFlow()).reason).toBe("not-granted");
  });

  it("is requested as FTP", async () => {
    const { source, destination } = await stage();
    const requested = (service: string, more?: Partial<RemoteRequest>) =>
      ask(source, destination.uid, service, more).outcome;
    expect(await requested("files")).toBe("protocol-mismatch");
    expect(await requested("plain", ftp)).toBe("protocol-mismatch");
    expect(await requested("files", { protocol: "udp", application: "tftp" })).toBe("not-granted");
    expect(await requested("plain")).toBeTypeOf("object");
  });
});
