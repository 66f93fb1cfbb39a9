// netplan with systemd-networkd in a container of its own, over this machine's files.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { machineState, type MachineState } from "../../../test/support/network/machine-state.ts";
import { atEnd } from "../ending.ts";
import { delay, startTool, until } from "../programs.ts";

/** A machine that netplan looks after. */
export interface NetplanMachine {
  /** Puts its network as the text says, and waits until it is. */
  apply(yaml: string): Promise<void>;
  /** Starts `netplan try` on a text, and gives what it took until `isDone`, in milliseconds, while it goes on waiting for ENTER. */
  try(yaml: string, timeoutSeconds: number, isDone: () => boolean): Promise<{ readonly ms: number; kill(): void }>;
  state(): MachineState;
  /** Returns the number of routes in the table main. */
  routes(): number;
  end(): Promise<void>;
}

const SPACE = "holdfast-netplan";
const CONFIG = "etc/netplan/10-all.yaml";
const TOOLS = {
  netplan: "netplan.io",
  "systemd-nspawn": "systemd-container",
  networkctl: "systemd",
  script: "bsdutils",
};

/** Returns the reason why netplan cannot run on this machine; undefined if it can. */
export function whyNoNetplan(): string | undefined {
  if (process.getuid?.() !== 0) return "needs root";
  const missing = Object.entries(TOOLS).filter(([tool]) => spawnSync("which", [tool]).status !== 0);
  return missing.length === 0 ? undefined : `not installed: ${missing.map(([, name]) => name).join(", ")}`;
}

/**
 * Boots it with the text in force. There is no udev in a container, which netplan would only ask to look at its links again, so
 * `udevadm` does nothing there.
 */
export async function startNetplan(dir: string, yaml: string): Promise<NetplanMachine> {
  const [upper, work, root] = ["upper", "work", "root"].map((name) => join(dir, `netplan-${name}`)) as [
    string,
    string,
    string,
  ];
  for (const path of [upper, work, root]) mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "overlay", "overlay", "-o", `lowerdir=/,upperdir=${upper},workdir=${work}`, root]);
  // Also while something is at work in it, which is ended after.
  const unmount = atEnd(() => void execFileSync("umount", ["--lazy", root]));
  execFileSync("ip", ["netns", "add", SPACE]);
  const removeSpace = atEnd(() => void execFileSync("ip", ["netns", "del", SPACE]));
  for (const line of ["lo up", "add name eth0 type veth peer name peer0", "peer0 up"]) {
    execFileSync("ip", ["-n", SPACE, "link", ...(line.startsWith("add") ? [] : ["set"]), ...line.split(" ")]);
  }
  const wants = join(root, "etc/systemd/system/multi-user.target.wants");
  if (existsSync(wants)) for (const name of readdirSync(wants)) rmSync(join(wants, name));
  for (const path of ["usr/bin/udevadm", CONFIG]) rmSync(join(root, path), { force: true });
  mkdirSync(join(root, "etc/netplan"), { recursive: true });
  writeFileSync(join(root, "usr/bin/udevadm"), "#!/bin/sh\nexit 0\n", { mode: 0o755 });
  writeFileSync(join(root, CONFIG), yaml, { mode: 0o600 });
  const place = ["-D", root, "--machine", SPACE, `--network-namespace-path=/run/netns/${SPACE}`];
  const rights = ["--register=no", "--keep-unit", "--capability=CAP_NET_ADMIN,CAP_NET_RAW", "--link-journal=no"];
  const unit = ["-b", "systemd.unit=multi-user.target", "systemd.show_status=no"];
  const container = startTool("systemd-nspawn", [...rights, ...place, ...unit], join(dir, "netplan.log"));
  let within: readonly string[] = [];
  const run = (...command: readonly string[]): string => {
    const [file, ...args] = [...within, ...command];
    return execFileSync(file ?? "", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  };
  await until("netplan's machine is up", () => {
    const leader = readFileSync(`/proc/${container.pid}/task/${container.pid}/children`, "utf8").trim().split(" ")[0];
    if (leader === undefined || leader === "") return false;
    within = ["nsenter", "--all", "--target", leader];
    return run("systemctl", "is-active", "systemd-networkd").trim() === "active";
  });
  const write = (text: string): void => void run("sh", "-c", `cat > /${CONFIG} <<'END'\n${text}\nEND`);
  return {
    state: () => machineState(["ip", "netns", "exec", SPACE]),
    routes: () => execFileSync("ip", ["-n", SPACE, "route"], { encoding: "utf8" }).trim().split("\n").length,
    async apply(text) {
      write(text);
      run("netplan", "apply");
      await delay(500);
    },
    async try(text, timeoutSeconds, isDone) {
      write(text);
      const command = `netplan try --timeout ${timeoutSeconds}`;
      const [file, ...args] = [...within, "script", "--quiet", "--return", "--command", command, "/dev/null"];
      const begun = performance.now();
      const tool = startTool(file ?? "", args, join(dir, "netplan-try.log"));
      await until("netplan has applied it", isDone, 1);
      const ms = performance.now() - begun;
      return {
        ms,
        kill: () => {
          run("pkill", "-KILL", "-f", "netplan try");
          void tool.end("SIGKILL");
        },
      };
    },
    async end() {
      spawnSync(within[0] ?? "", [...within.slice(1), "systemctl", "poweroff"]);
      await until("netplan's machine is off", () => !existsSync(`/proc/${container.pid}/root/bin`));
      await container.end("SIGKILL");
      await removeSpace();
      await unmount();
    },
  };
}
