/** A file of end-to-end tests, or only those of its tests whose names begin like that. */
export interface LeftOut {
  readonly file: string;
  readonly tests?: readonly string[];
  readonly reason: string;
}

const files = (reason: string, ...names: readonly string[]): readonly LeftOut[] =>
  names.map((name) => ({ file: `test/e2e/${name}.test.ts`, reason }));
const tests = (name: string, reason: string, ...begins: readonly string[]): LeftOut => ({
  file: `test/e2e/${name}.test.ts`,
  tests: begins,
  reason,
});

/** Tests that cannot run with agents and overlays confined as by their units, each with the reason. */
export const LEFT_OUT: readonly LeftOut[] = [
  ...files(
    "installs packages, on machines and copies of its own",
    "installed/packages",
    "installed/packages-killed",
    "installed/node",
    "installed/upgrades",
    "installed/guide",
  ),
  ...files(
    "drives the launcher and the programs of an upgrade, each of which has another unit",
    "upgrades/verified",
    "upgrades/verified-built",
    "upgrades/fetch",
    "upgrades/kill-points",
    "upgrades/rolled-back",
    "upgrades/requested",
  ),
  ...files(
    "starts parts of the agent in processes of the test's, traced or killed at chosen calls, and no agent",
    "network/checkpoint",
    "agent/kill-points",
    "agent/power-cut",
    "data-store/killed",
    "network/guard",
  ),
  ...files(
    "follows the calls of the agent's tools with ptrace(2), which the unit's filter keeps from them",
    "network/kill-points",
  ),
  ...files(
    "runs a program of its own without an agent",
    "data-store/s3",
    "overlay/flow-records",
    "connectors/tftp",
    "controller/repositories",
  ),
  ...files("is about the controller and its PostgreSQL", "controller/postgres", "controller/rivals"),
  ...files(
    "runs scripts of the checkout as a person does",
    "checkout/bench",
    "checkout/guide",
    "checkout/lab",
    "engine/leftovers",
  ),
  ...files("is the service manager of the agent itself", "agent/service-manager"),
  tests(
    "overlay/killed",
    "has another overlay in the place of one that still ends; systemd starts none before the last has ended",
    "an overlay that receives SIGTERM",
  ),
];
