import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { userInfo } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { freePort } from "./programs.ts";
import { waitFor } from "./wait-for.ts";

export interface FileServer {
  readonly port: number;
  /** What it serves; clients may write into `upload` in it. */
  readonly root: string;
}

const VSFTPD = "/usr/sbin/vsftpd";

/** A real FTP server for anonymous users on 127.0.0.1, below `dir`; it ends with the test. */
export async function aVsftpd(dir: string, more: Readonly<Record<string, string>> = {}): Promise<FileServer> {
  if (!existsSync(VSFTPD)) throw new Error("vsftpd is missing: apt-get install vsftpd");
  const port = await freePort();
  const root = join(dir, "ftp");
  const config = join(dir, "vsftpd.conf");
  mkdirSync(join(root, "upload"), { recursive: true });
  const settings = {
    listen: "YES",
    listen_address: "127.0.0.1",
    listen_port: String(port),
    background: "NO",
    run_as_launching_user: "YES",
    secure_chroot_dir: root,
    seccomp_sandbox: "NO",
    anonymous_enable: "YES",
    no_anon_password: "YES",
    anon_root: root,
    write_enable: "YES",
    anon_upload_enable: "YES",
    anon_umask: "022",
    connect_from_port_20: "NO",
    // It would tell its own address, which nobody may believe.
    pasv_address: "192.0.2.1",
    ...more,
  };
  writeFileSync(
    config,
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(""),
  );
  // It refuses a root that its users could write to.
  chmodSync(root, 0o555);
  const child = spawn(VSFTPD, [config], { stdio: ["ignore", "inherit", "inherit"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
    chmodSync(root, 0o755);
  });
  await waitFor("vsftpd answers", () => answers(port));
  return { port, root };
}

const TFTPD = "/usr/sbin/in.tftpd";

/** A real TFTP server on 127.0.0.1, below `dir`, where clients may write too; it ends with the test. */
export async function aTftpd(dir: string): Promise<FileServer> {
  if (!existsSync(TFTPD)) throw new Error("in.tftpd is missing: apt-get install tftpd-hpa");
  const port = await freePort();
  const root = join(dir, "tftp");
  mkdirSync(root, { recursive: true });
  const where = ["--address", `127.0.0.1:${port}`, "--user", userInfo().username];
  const child = spawn(TFTPD, ["--foreground", ...where, "--secure", "--create", root], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const local = port.toString(16).toUpperCase().padStart(4, "0");
  await waitFor("in.tftpd listens", () => readFileSync("/proc/net/udp", "utf8").includes(`0100007F:${local} `));
  return { port, root };
}

/** Whether something accepts connections at a port of 127.0.0.1. */
export function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1")
      .on("error", () => resolve(false))
      .on("data", () => {
        socket.destroy();
        resolve(true);
      });
  });
}
