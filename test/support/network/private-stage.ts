import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { inNetworkOf } from "./private-machine.ts";

/** A private network: loopback, an echo server on 127.0.0.1:7, and a path to one port of the machine's loopback. */
export interface PrivateNetwork {
  /** A command prefix, for `within`. */
  readonly within: readonly string[];
  /** Runs `ip` there. */
  readonly ip: (...args: readonly string[]) => void;
  /** Sets the port below which listening needs the capability. */
  readonly setFirstFreePort: (port: number) => void;
  /** Reports whether a connection made there is echoed. */
  readonly isServed: (address: string, port: number) => Promise<boolean>;
}

/**
 * Needs user and network namespaces, and root only if requested: some tools drop privileges that only root can, and /sys then shows the
 * links of this network. What it starts ends with the test, or by `onFinished`.
 */
export async function privateNetwork(
  dir: string,
  port: number,
  as: "user" | "root" = "user",
  onFinished: (end: () => void) => void = onTestFinished,
): Promise<PrivateNetwork> {
  const path = join(dir, "way-out.sock");
  const script = join(dir, "inside.mjs");
  const sockets = new Set<Socket>();
  const outside = createServer((inner) => {
    const outer = connect(port, "127.0.0.1");
    for (const socket of [inner, outer])
      sockets.add(socket.on("error", () => [inner, outer].map((one) => one.destroy())));
    inner.pipe(outer).pipe(inner);
  });
  await new Promise<void>((resolve) => outside.listen(path, resolve));
  writeFileSync(
    script,
    `import { connect, createServer } from "node:net";
    const listen = (port, serve) => new Promise((resolve) => createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", () => undefined);
      serve(socket);
    }).listen(port, "127.0.0.1", resolve));
    await listen(7, (socket) => socket.pipe(socket));
    await listen(${port}, (socket) => {
      const out = connect(${JSON.stringify(path)}).on("error", () => socket.destroy());
      socket.pipe(out).pipe(socket);
    });
    console.log("ready");`,
  );
  const prepare = as === "root" ? "mount -t sysfs sysfs /sys && " : "";
  const inside = `${prepare}ip link set lo up && echo 1024 > /proc/sys/net/ipv4/ip_unprivileged_port_start && echo 0 > /proc/sys/net/ipv4/ip_forward && exec "$0" "$@"`;
  const holder = spawn("unshare", [as === "root" ? "-nm" : "-rn", "sh", "-c", inside, process.execPath, script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onFinished(() => {
    holder.kill("SIGKILL");
    outside.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(holder.stdout, "data");
  const pid = holder.pid ?? 0;
  const within = as === "root" ? ["nsenter", "-t", String(pid), "-n", "-m"] : inNetworkOf(pid);
  const [enter = "", ...entering] = within;
  return {
    within,
    ip: (...args) => void execFileSync(enter, [...entering, "ip", ...args]),
    setFirstFreePort(first) {
      const command = `echo ${first} > /proc/sys/net/ipv4/ip_unprivileged_port_start`;
      execFileSync(enter, [...entering, "sh", "-c", command]);
    },
    isServed(address, port) {
      const say = `exec 3<>/dev/tcp/${address}/${port} && echo hello >&3 && head -n 1 <&3`;
      return new Promise((resolve) => {
        execFile(enter, [...entering, "timeout", "2", "bash", "--norc", "-c", say], (_, stdout) =>
          resolve(stdout === "hello\n"),
        );
      });
    },
  };
}
