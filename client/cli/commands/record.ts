import { spawn } from "node:child_process";
import { once } from "node:events";
import { CliError, hasCode } from "../cli-error.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, print, writeTo } from "../io.ts";

/** Options of `record`. */
export interface RecordOptions {
  readonly output: string;
  readonly for?: number;
  readonly rate?: number;
}

const USUAL_RATE = 5;
const SAID_BYTES = 1_000;
/** Screens change their size while a system starts, and videos cannot. */
const [WIDTH, HEIGHT] = [1024, 768];
const FIT = `scale=${WIDTH}:${HEIGHT}:force_original_aspect_ratio=decrease,pad=${WIDTH}:${HEIGHT}:-1:-1,format=yuv420p`;

/** Records a screen to a video file, by the ffmpeg of this machine, for so long or until the person leaves. */
export async function record(context: CliContext, id: string, options: RecordOptions): Promise<number> {
  const { output, for: durationMs, rate: framesPerSecond = USUAL_RATE } = options;
  const client = await context.connect({ start: false });
  using interrupts = new Interrupts(context.io);
  const { signal } = interrupts;
  const { computer } = client.sandboxes.use(id);
  await computer.info({ signal });
  const encoder = await startEncoder(output, framesPerSecond);
  let frames = 0;
  try {
    for await (const png of computer.film({ framesPerSecond, signal, ...(durationMs && { durationMs }) })) {
      frames++;
      if (!(await writeTo(encoder.stdin, png))) break;
    }
  } catch (error) {
    // What there is becomes a video, too.
    if (interrupts.left === undefined) throw error;
  } finally {
    encoder.stdin.end();
    await encoder.ended;
  }
  print(context, { file: output, frames }, () => `${output}: ${frames} frames\n`);
  return 0;
}

/** An ffmpeg that takes PNGs and writes the file; the ending of its name says what kind of video that is. */
async function startEncoder(output: string, framesPerSecond: number) {
  const input = ["-f", "image2pipe", "-framerate", String(framesPerSecond), "-c:v", "png", "-i", "-"];
  const words = ["-loglevel", "error", "-y", ...input, "-vf", FIT, output];
  // Its own group: an interrupt of the person ends the recording, and the file is still to be finished.
  const child = spawn("ffmpeg", words, { stdio: ["pipe", "ignore", "pipe"], detached: true });
  const spawned = once(child, "spawn");
  const closed = once(child, "close");
  closed.catch(() => undefined);
  // Writing to one that has ended is told by its end.
  child.stdin.on("error", () => undefined);
  try {
    await spawned;
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    throw new CliError("FailedPrecondition", "this machine has no ffmpeg, which makes the video", {
      cause: error,
      hint: "apt-get install ffmpeg",
    });
  }
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said = `${said}${text}`.slice(0, SAID_BYTES);
  });
  const ended = closed.then(([code]) => {
    if (code === 0) return;
    throw new CliError("FailedPrecondition", `ffmpeg made no video: ${said.trim()}`, {
      hint: "check the path, and whether its ending names a video that ffmpeg knows: .mp4, .webm",
    });
  });
  ended.catch(() => undefined);
  return { stdin: child.stdin, ended };
}
