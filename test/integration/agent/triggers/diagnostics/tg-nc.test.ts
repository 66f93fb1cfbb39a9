import { createServer, type AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { probeTcp } from "../../../../../src/agent/triggers/tools/tcp-probe.ts";
import { netcatArguments, tgNc } from "../../../../../src/agent/triggers/diagnostics/tg-nc.ts";
import { TgNc } from "../../../../../src/protocol/triggers/bodies.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec } from "../../../../../src/host/process/exec.ts";
import { rig, type Rig } from "../../../../unit/agent/triggers/rig.ts";

const clock = systemClock();
const server = createServer((socket) => socket.destroy());
let open = 0;
let closed = 0;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open = (server.address() as AddressInfo).port;
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  closed = (other.address() as AddressInfo).port;
  await new Promise((resolve) => other.close(resolve));
});
afterAll(() => {
  server.close();
});

// The same texts with and without the tool.
describe.each([
  ["nc", rig([tgNc(hostExec(clock))])],
  ["no nc", rig([tgNc(hostExec(clock, "/nowhere"))])],
])("with %s", (_, { run }: Rig) => {
  const message = async (body: Record<string, unknown>): Promise<unknown> => {
    const reply = await run("tg-nc", { body });
    return "body" in reply ? reply.body : reply.error;
  };

  test("an open port", async () => {
    const succeeded = (shown: string) => ({
      output: { message: `Connection to ${shown} ${open} port [tcp/*] succeeded!\n`, exitCode: "0" },
    });
    expect(await message({ host: "127.0.0.1", port: open })).toEqual(succeeded("127.0.0.1"));
    expect(await message({ host: "127.0.0.1", port: open, source: "127.0.0.1" })).toEqual(succeeded("127.0.0.1"));
  });

  test("a refused port is a result", async () => {
    expect(await message({ host: "127.0.0.1", port: closed })).toEqual({
      output: { message: `nc: connect to 127.0.0.1 port ${closed} (tcp) failed: Connection refused\n`, exitCode: "1" },
    });
    expect(await message({ host: "localhost", port: closed })).toMatchObject({
      output: {
        message: expect.stringContaining(
          `nc: connect to localhost (127.0.0.1) port ${closed} (tcp) failed: Connection refused\n`,
        ) as string,
        exitCode: "1",
      },
    });
  });

  test("an unknown name and a foreign source are results", async () => {
    expect(await message({ host: "no-such-host.invalid", port: 1 })).toEqual({
      output: {
        message: 'nc: getaddrinfo for host "no-such-host.invalid" port 1: Name or service not known\n',
        exitCode: "1",
      },
    });
    expect(await message({ host: "127.0.0.1", port: open, source: "203.0.113.9" })).toEqual({
      output: { message: "nc: bind failed: Cannot assign requested address\n", exitCode: "1" },
    });
  });
});

test("puts the host after the options", () => {
  expect(netcatArguments({ host: "h", port: 1, source: "192.0.2.1" }).join(" ")).toBe("-v -z -s 192.0.2.1 -w 5 -- h 1");
});

test.each([
  [{ host: "h" }],
  [{ host: "h", port: 0 }],
  [{ host: "h", port: 65_536 }],
  [{ host: "h", port: "80" }],
  [{ host: "-e/bin/sh", port: 1 }],
  [{ host: "h", port: 1, source: "-u" }],
])("refuses %j", (body) => {
  expect(TgNc.safeParse(body).success).toBe(false);
});

test("an aborted probe gives the reason, before and during the connect", async () => {
  const reason = new Error("taken back");
  const probe = (host: string, signal: AbortSignal) => probeTcp({ host, port: open }, 5000, signal);
  await expect(probe("localhost", AbortSignal.abort(reason))).rejects.toBe(reason);
  await expect(probe("127.0.0.1", AbortSignal.abort(reason))).rejects.toBe(reason);
});
