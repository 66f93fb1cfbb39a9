import { createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { announcedPort } from "../../../../src/overlay/ftp/ftp-control.ts";
import { Lines } from "../../../../src/overlay/ftp/lines.ts";
import { aClient, aListener, aServer, aService, planeRig, type Client } from "../../../support/overlay-rig.ts";
import { grant, peerRig } from "../../../support/peer-rig.ts";
import { freePort } from "../../../support/programs.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** A small FTP server in passive mode: RETR sends `content`, STOR keeps what comes; its replies name an address that is not its own. */
async function ftpServer(content: Buffer) {
  const stored: Buffer[] = [];
  const commands: string[] = [];
  const port = await aServer((control) => {
    let data: Promise<Socket> | undefined;
    control.write("220 here\r\n");
    const onCommand = async (line: string): Promise<void> => {
      commands.push(line);
      const [verb = ""] = line.split(" ");
      if (verb === "PASV" || verb === "EPSV") {
        const listener = createServer();
        onTestFinished(() => void listener.close());
        await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
        data = new Promise((resolve) => listener.once("connection", resolve));
        const own = (listener.address() as AddressInfo).port;
        if (verb === "PASV") control.write(`227 Entering Passive Mode (192,0,2,9,${own >> 8},${own & 255})\r\n`);
        else control.write(`229 Entering Extended Passive Mode (|||${own}|)\r\n`);
      } else if (verb === "RETR") {
        control.write("150 it comes\r\n");
        (await data)?.end(content);
        control.write("226 done\r\n");
      } else if (verb === "STOR") {
        control.write("150 send it\r\n");
        const socket = await data;
        socket?.on("data", (chunk: Buffer) => stored.push(chunk)).on("end", () => control.write("226 stored\r\n"));
      } else if (verb === "QUIT") control.end("221 bye\r\n");
      else control.write("200 as you like\r\n");
    };
    let rest = "";
    control.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split("\r\n");
      rest = lines.pop() ?? "";
      for (const line of lines) void onCommand(line);
    });
  });
  return { port, stored, commands };
}

/** A connector for FTP on this machine, or from one node to another. */
async function ftpStage(where: "here" | "there", content: Buffer) {
  const server = await ftpServer(content);
  const port = await freePort();
  const service = aService("files", server.port, { application: "ftp" });
  if (where === "here") {
    const source = planeRig();
    await source.apply([aListener(port, { service: "files" }, { application: "ftp" })], [service]);
    return { server, port, source, destination: undefined };
  }
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  await destination.apply([], [service]);
  await source.apply([aListener(port, { peer: destination.uid, service: "files" }, { application: "ftp" })]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "files")]);
  return { server, port, source, destination };
}

async function answerTo(control: Client, command: string, answer: RegExp): Promise<string> {
  const before = control.text().length;
  control.socket.write(`${command}\r\n`);
  return waitFor(`${answer} to ${command}`, () => answer.exec(control.text().slice(before))?.[0]);
}

async function dataPort(control: Client, verb: "PASV" | "EPSV"): Promise<number> {
  const answer = await answerTo(control, verb, /^22[79] .*\r\n/m);
  if (verb === "PASV") expect(answer).toContain("(127,0,0,1,");
  return announcedPort(answer)?.port ?? 0;
}

describe.each(["here", "there"] as const)("ftp to a server %s", (where) => {
  const content = Buffer.from("0123456789".repeat(100_000));

  it.each(["PASV", "EPSV"] as const)("fetches and stores by %s", async (verb) => {
    const { server, port, source } = await ftpStage(where, content);
    const control = aClient(port);
    await waitFor("the greeting", () => control.text() === "220 here\r\n");
    const first = await dataPort(control, verb);
    const down = aClient(first);
    await answerTo(control, "RETR file", /^226 .*\r\n/m);
    await waitFor("all of it", () => down.fate() === "end");
    expect(Buffer.concat(down.received).equals(content)).toBe(true);
    const second = await dataPort(control, verb);
    expect(second).not.toBe(first);
    const up = aClient(second);
    await answerTo(control, "STOR file", /^150 .*\r\n/m);
    up.socket.end(content);
    await waitFor("it is stored", () => control.text().includes("226 stored"));
    expect(Buffer.concat(server.stored).equals(content)).toBe(true);
    await answerTo(control, "QUIT", /^221 .*\r\n/m);
    await waitFor("the end", () => control.fate() === "end");
    control.socket.end();
    up.socket.destroy();
    down.socket.destroy();
    await waitFor("nothing is left", () => source.plane.activeFlows === 0);
    expect(source.counters()).toMatchObject({ flows: 3, refusals: {} });
    // One connection each: the ports are closed.
    for (const used of [first, second]) {
      const late = aClient(used);
      expect(await waitFor("it is refused", () => late.fate())).toBe("ECONNREFUSED");
    }
  });

  it("refuses active mode and TLS without asking the server", async () => {
    const { server, port } = await ftpStage(where, content);
    const control = aClient(port);
    for (const command of ["PORT 127,0,0,1,4,1", "EPRT |1|127.0.0.1|1025|", "auth tls", "AUTH SSL"])
      await answerTo(control, command, /^502 .*\r\n/m);
    await answerTo(control, "NOOP", /^200 .*\r\n/m);
    expect(server.commands).toEqual(["NOOP"]);
  });

  it("closes a data port with its control channel", async () => {
    const { port, source } = await ftpStage(where, content);
    const control = aClient(port);
    const data = await dataPort(control, "EPSV");
    control.socket.resetAndDestroy();
    await waitFor("it is over", () => source.plane.activeFlows === 0);
    const late = aClient(data);
    expect(await waitFor("it is refused", () => late.fate())).toBe("ECONNREFUSED");
  });
});

describe("data ports of another node's server", () => {
  it("are only those that the server has named, and no other service's", async () => {
    const { port, source, destination, server } = await ftpStage("there", Buffer.from("x"));
    if (destination === undefined) throw new Error("no destination");
    const secret = await aServer((socket) => socket.end("secret"));
    const control = aClient(port);
    await dataPort(control, "EPSV");
    const ask = (dataPort: number, label: string): Promise<string> =>
      new Promise((resolve) => {
        source.flows.remote.dial(
          {
            target: { peer: destination.uid, label, dataPort },
            protocol: "tcp",
            client: { ip: "127.0.0.1", port: 1 },
          },
          { opened: () => resolve("opened"), failed: resolve },
        );
      });
    expect(await ask(secret, "files")).toBe("not-granted");
    await destination.apply([], [aService("files", server.port)]);
    destination.meet([source.peer], [grant(source, "files"), grant(source, `127.0.0.1:${server.port}`)]);
    expect(await ask(secret, "files")).toBe("not-granted");
    expect(await ask(secret, `127.0.0.1:${server.port}`)).toBe("not-granted");
  });
});

describe("replies", () => {
  it.each([
    ["227 Entering Passive Mode (10,0,0,1,4,1).\r\n", 1025],
    ["227 =10,0,0,1,255,255\r\n", 65_535],
    ["229 Entering Extended Passive Mode (|||6446|)\r\n", 6446],
    ["229 ok (!!!1!)\r\n", 1],
  ])("name a port: %s", (line, port) => expect(announcedPort(line)?.port).toBe(port));

  it.each([
    "227 Entering Passive Mode (10,0,0,1,256,1)\r\n",
    "227 (10,0,0,1,0,0)\r\n",
    "227 nothing\r\n",
    "229 (|||0|)\r\n",
    "229 (|||65536|)\r\n",
    "229 (|1|2|3|)\r\n",
    "228 (10,0,0,1,4,1)\r\n",
    " 227 (10,0,0,1,4,1)\r\n",
  ])("name none: %s", (line) => expect(announcedPort(line)).toBeUndefined());

  it("are put together again however they are cut up, and long ones pass as they are", () => {
    const seen: string[] = [];
    const lines = new Lines((line) => {
      seen.push(line);
      return line.toUpperCase();
    });
    const long = `${"y".repeat(5000)}\r\n`;
    const text = `one\r\ntwo\r\n${long}three\r\n\xff\xfb`;
    const out = [...Buffer.from(text, "latin1")].map((byte) => lines.pass(Buffer.of(byte)).toString("latin1")).join("");
    expect(out).toBe(`ONE\r\nTWO\r\n${long}THREE\r\n`);
    expect(seen).toEqual(["one\r\n", "two\r\n", "three\r\n"]);
  });
});
