import type { ClientHttp2Session, OutgoingHttpHeaders } from "node:http2";
import { connect } from "node:tls";
import { describe, expect, it } from "vitest";
import { dialTls, whenProved } from "../../../../../src/overlay/mesh/transport/tls.ts";
import { aClient, echo } from "../../../../support/overlay/overlay-rig.ts";
import { meshIdentity } from "../../../../support/overlay/mesh-identity.ts";
import { GATEWAY, remoteService, streamPair } from "../../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";

/** Returns the result of a request: its status and reason, or the code of its reset. */
async function answerTo(session: ClientHttp2Session, headers: OutgoingHttpHeaders): Promise<string> {
  const stream = session.request(headers, { endStream: false });
  let status = "";
  stream
    .on("error", () => undefined)
    .on("response", (answer) => {
      status = `${String(answer[":status"])} ${String(answer["holdfast-reason"])}`;
      stream.close();
    });
  await waitFor("an answer or a reset", () => stream.destroyed);
  return status === "" ? `reset ${stream.rstCode}` : status;
}

describe("an authenticated peer", () => {
  it("has what is not a flow refused, and keeps its session", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    const session = await rig.direct(source, destination);
    const flow: OutgoingHttpHeaders = {
      ":method": "CONNECT",
      ":authority": `${destination.uid}:443`,
      "holdfast-service": "web",
      "holdfast-protocol": "tcp",
      "holdfast-flow": "10000000-0000-4000-8000-0000000000f1",
      "holdfast-client": "127.0.0.1:1",
    };
    expect(await answerTo(session, flow)).toBe("200 undefined");
    const wrong: readonly OutgoingHttpHeaders[] = [
      { ...flow, "holdfast-service": "" },
      { ...flow, "holdfast-service": "x".repeat(254) },
      { ...flow, "holdfast-protocol": "sctp" },
      { ...flow, "holdfast-protocol": "udp" },
      { ...flow, "holdfast-flow": "not an id" },
      { ...flow, "holdfast-flow": "a".repeat(65) },
      { ...flow, "holdfast-client": "127.0.0.1" },
      { ...flow, "holdfast-client": "example.com:80" },
      { ...flow, "holdfast-client": "127.0.0.1:0" },
      { ...flow, "holdfast-client": "127.0.0.1:65536" },
      { ...flow, ":protocol": "websocket", ":scheme": "https", ":path": "/" },
      { ...flow, ":protocol": "connect-udp", ":scheme": "https", ":path": "/" },
      { ":method": "GET", ":scheme": "https", ":path": "/echo", ":authority": "x" },
      { ":method": "POST", ":scheme": "https", ":path": "/other", ":authority": "x" },
      { ":method": "CONNECT", ":authority": `${destination.uid}:443` },
    ];
    for (const headers of wrong) expect(await answerTo(session, headers)).toBe("400 other");
    expect(await answerTo(session, { ...flow, "holdfast-service": "constructor" })).toBe("403 not-granted");
    expect(await answerTo(session, { ...flow, "holdfast-service": "web\ttcp" })).toBe("403 not-granted");
    const client = aClient(port);
    client.socket.write("hello");
    await waitFor("a flow is served", () => client.text() === "hello");
    expect(session.destroyed).toBe(false);
  });

  it("gets no more back than an echo may have", async () => {
    const { rig, source, destination } = await remoteService(echo);
    const session = await rig.direct(source, destination);
    const stream = session.request({ ":method": "POST", ":scheme": "https", ":path": "/echo", ":authority": "x" });
    let back = 0;
    stream.on("error", () => undefined).on("data", (chunk: Buffer) => (back += chunk.length));
    stream.end(Buffer.alloc(1_000_000));
    await waitFor("it is cut off", () => stream.closed);
    expect(stream.rstCode).not.toBe(0);
    expect(back).toBeLessThanOrEqual(65_000);
    expect(session.destroyed).toBe(false);
  });

  it("does not displace the records of others by failing requests", async () => {
    const { source, destination, port } = await remoteService(echo);
    destination.meet([source.peer]);
    const clients = Array.from({ length: 400 }, () => aClient(port));
    await Promise.all(clients.map((client) => waitFor("it is refused", () => client.fate())));
    await waitFor("all are recorded here", async () => {
      await source.nextFlow();
      return source.ended.length === 400;
    });
    await destination.nextFlow();
    expect(destination.ended.length).toBeGreaterThanOrEqual(100);
    expect(destination.ended.length).toBeLessThan(400);
  });
});

describe("an unauthenticated peer", () => {
  it.each(["no certificate", "another key", "another protocol", "plain HTTP/2", "garbage"])(
    "gets no session: %s",
    async (what) => {
      const { source, destination } = await remoteService(echo);
      const [near, far] = await streamPair();
      destination.flows.inbound.tunnel(far, { gateway: GATEWAY, path: "" });
      near.on("error", () => undefined);
      const isOver = new Promise<void>((resolve) => {
        near.on("end", resolve).on("close", resolve).resume();
      });
      if (what === "no certificate") {
        connect({ socket: near, rejectUnauthorized: false, ALPNProtocols: ["holdfast-peer"] }).on(
          "error",
          () => undefined,
        );
      } else if (what === "another key") {
        const socket = dialTls(near, await meshIdentity(source.uid), "holdfast-peer");
        await whenProved(socket).catch(() => undefined);
        socket.on("error", () => undefined);
      } else if (what === "another protocol") {
        const socket = dialTls(near, source.identity, "h2");
        await whenProved(socket).catch(() => undefined);
        socket.on("error", () => undefined);
      } else near.write(what === "garbage" ? Buffer.alloc(65_536, "x") : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
      await isOver;
      expect(destination.flows.states()).toEqual([]);
    },
  );
});
