import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { addFile } from "./tree-files.ts";

/** A screen, its input, a window manager, a terminal and a browser: each a small one, since processors may be emulated. */
export const DESKTOP_PACKAGES = [
  ...["xserver-xorg-core", "xserver-xorg-input-libinput", "xinit", "x11-xserver-utils", "fonts-dejavu-core"],
  ...["icewm", "xterm", "dillo", "sudo"],
];

/** Who sits at the screen. */
const USER = "user";
const SESSION_PATH = "usr/lib/dsec/desktop";
const TERMINAL_PATH = "etc/X11/Xresources/dsec";

/** The driver of the screen may come after it: it is tried again. */
const SERVICE = `[Unit]
Description=desktop
After=systemd-user-sessions.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/xinit /${SESSION_PATH} -- /usr/bin/Xorg :0 vt7 -nolisten tcp -noreset
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`;

/** A screen that goes dark by itself would be taken for one on which nothing is. */
const SESSION = `#!/bin/sh
xset s off -dpms
xsetroot -solid '#2b4a6f' -cursor_name left_ptr
xrdb -nocpp -merge /${TERMINAL_PATH}
cd /home/${USER}
export HOME=/home/${USER} USER=${USER} LOGNAME=${USER} SHELL=/bin/bash LANG=C.UTF-8
exec setpriv --reuid ${USER} --regid ${USER} --init-groups sh -c 'xterm & exec icewm'
`;

/** Nothing draws in three dimensions here: doing so in software costs most of a processor that is itself emulated. */
const SCREEN = `Section "Device"
  Identifier "screen"
  Driver "modesetting"
  Option "AccelMethod" "none"
EndSection
`;

const TERMINAL = `XTerm*faceName: DejaVu Sans Mono
XTerm*faceSize: 11
XTerm*geometry: 90x28+40+40
XTerm*saveLines: 2000
`;

const TOOLBAR = `prog "Terminal" xterm xterm
prog "Browser" ! dillo
`;

/** Makes the first start of a Debian tree that has `DESKTOP_PACKAGES` end at a desktop, as a user who may become root. */
export function addDesktop(tree: string): void {
  addFile(tree, "etc/systemd/system/dsec-desktop.service", SERVICE, 0o644);
  const wanted = join(tree, "etc/systemd/system/multi-user.target.wants");
  mkdirSync(wanted, { recursive: true });
  symlinkSync("../dsec-desktop.service", join(wanted, "dsec-desktop.service"));
  addFile(tree, SESSION_PATH, SESSION, 0o755);
  addFile(tree, "etc/X11/xorg.conf.d/20-dsec.conf", SCREEN, 0o644);
  addFile(tree, "etc/X11/icewm/toolbar", TOOLBAR, 0o644);
  addFile(tree, TERMINAL_PATH, TERMINAL, 0o644);
  addFile(tree, "etc/sudoers.d/dsec", `${USER} ALL=(ALL) NOPASSWD: ALL\n`, 0o440);
}
