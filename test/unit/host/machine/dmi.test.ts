import { expect, test } from "vitest";
import { hasTpm, readDmi } from "../../../../src/host/machine/dmi.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

test("reads the firmware's names and skips its fillers", () => {
  const { reader } = machineRoot({
    "/sys/class/dmi/id/sys_vendor": "VMware, Inc.\n",
    "/sys/class/dmi/id/product_name": "To Be Filled By O.E.M.\n",
    "/sys/class/dmi/id/board_name": "440BX Desktop Reference Platform\n",
    "/sys/hypervisor/type": "xen\n",
    "/sys/class/tpm/tpm0/dev": "10:224\n",
  });
  expect(readDmi(reader)).toEqual({
    systemVendor: "VMware, Inc.",
    productName: undefined,
    boardName: "440BX Desktop Reference Platform",
    assetTag: undefined,
    hypervisor: "xen",
  });
  expect(hasTpm(reader)).toBe(true);
});

test("a machine without firmware tables may still report that it is virtual", () => {
  const virtual = machineRoot({ "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n" });
  expect(readDmi(virtual.reader)).toMatchObject({ systemVendor: undefined, hypervisor: "unknown" });
  const real = machineRoot({ "/proc/cpuinfo": "flags\t\t: fpu vme\n" });
  expect(readDmi(real.reader).hypervisor).toBeUndefined();
  expect(hasTpm(real.reader)).toBe(false);
});
