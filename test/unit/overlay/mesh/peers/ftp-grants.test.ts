import type { Http2Stream } from "node:http2";
import { expect, it } from "vitest";
import { aServer, aService, echo } from "../../../../support/overlay/overlay-rig.ts";
import { grant, remoteService, type RemoteService } from "../../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const CLIENT = { ip: "127.0.0.1", port: 1 };

/** Opens a flow as a node with another overlay does. */
function open(
  { source, destination }: RemoteService,
  label: string,
  more: { application?: "ftp"; flow?: string; data?: { control: string; port: number } },
): Promise<Http2Stream | string> {
  const target = { peer: destination.uid, label };
  return new Promise((resolve) => {
    source.flows.remote.dial(
      { target, protocol: "tcp", client: CLIENT, ...more },
      { opened: (stream) => resolve(stream.on("error", () => undefined)), failed: resolve },
    );
  });
}

it("gives no access to another port of a server that relays commands, by calling it FTP", async () => {
  const stage = await remoteService(echo);
  const { source, destination, target } = stage;
  const secret = await aServer((socket) => socket.end("secret"));
  const literal = `127.0.0.1:${target}`;
  await destination.apply([], [aService("web", target)]);
  destination.meet([source.peer], [grant(source, "web"), grant(source, literal)], { allow: ["127.0.0.1"], own: true });
  const control = "10000000-0000-4000-8000-0000000000c0";
  for (const label of ["web", literal]) {
    expect(await open(stage, label, { application: "ftp", flow: control })).toBe("protocol-mismatch");
    // Neither is a control connection: a refused one, or a plain flow that carries FTP.
    const stream = await open(stage, label, { flow: control });
    if (typeof stream === "string") throw new Error(`a plain flow to ${label} is refused: ${stream}`);
    let received = "";
    stream.on("data", (chunk: Buffer) => (received += chunk.toString()));
    stream.write(`220 hello\r\nEPSV\r\n229 here (|||${secret}|)\r\n`);
    await waitFor("the server's echo", () => received.includes("229 "));
    expect(await open(stage, label, { data: { control, port: secret } })).toBe("not-granted");
    stream.destroy();
  }
});
