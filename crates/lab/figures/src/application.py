# One end of a conversation, as an application has it: writes and reads blocks, whatever carries them. It is told what to do by
# JSON in its first argument, and writes what it has seen as JSON to the file `report`, also when the conversation breaks.
import json, os, socket, ssl, subprocess, sys, time

MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)
plan = json.loads(sys.argv[1])


class Pipe:
    """Standard input and output: `plait connect` or `plait listen` is at the other end."""

    has_finished = False

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view):]

    def read_into(self, view):
        return os.readv(0, [view])

    def only_receives(self):
        # plait ends when both directions have, and its end is that of our input.
        self.finish()

    def finish(self):
        if not self.has_finished:
            os.close(1)
        self.has_finished = True


class Socket:
    """The kernel's Multipath TCP, with TLS if there is a certificate."""

    def __init__(self):
        address = (plan["address"], plan["port"])
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM, MPTCP)
        if plan["listens"]:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(1)
            print("listening", file=sys.stderr, flush=True)
            # It goes on to listen: the kernel takes further subflows by a socket that listens.
            self.listener = made
            self.socket, _ = made.accept()
        else:
            made.connect(address)
            self.socket = made
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = plan["certificate"] is not None
        if self.tls:
            self.socket = self.secured()
        self.cipher = None

    def secured(self):
        side = ssl.PROTOCOL_TLS_SERVER if plan["listens"] else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(side)
        # What the paper has measured: OpenSSL with TLS 1.2 and AES128-GCM.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        if plan["listens"]:
            context.load_cert_chain(plan["certificate"])
        else:
            # No other host is in this network.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(self.socket, server_side=plan["listens"])

    def write(self, data):
        if plan["enciphers"] is None:
            self.socket.sendall(data)
            return
        if self.cipher is None:
            self.cipher = self.openssl("-e", stdin=subprocess.PIPE, stdout=self.socket)
        self.cipher.stdin.write(data)

    def read_into(self, view):
        if plan["enciphers"] is None:
            return self.socket.recv_into(view)
        if self.cipher is None:
            self.cipher = self.openssl("-d", stdin=self.socket, stdout=subprocess.PIPE)
        return self.cipher.stdout.readinto1(view)

    def only_receives(self):
        pass

    def openssl(self, way, **ends):
        zeros = "0" * 32
        return subprocess.Popen(["openssl", "enc", "-aes-128-cbc", way, "-K", zeros, "-iv", zeros], **ends)

    def finish(self):
        if self.cipher is not None and self.cipher.stdin:
            self.cipher.stdin.close()
            self.cipher.wait()
        if self.tls:
            self.socket.unwrap()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The other end was first.


def send(channel, seen):
    block = bytes(at * 31 % 251 for at in range(plan["block"]))
    document = open(plan["document"], "rb").read() if plan["document"] else None
    for place in range(0, plan["bytes"], len(block)):
        length = min(len(block), plan["bytes"] - place)
        channel.write(document[place:place + length] if document else block[:length])
        if place == 0:
            # Until the second path has joined: the kernel gives the first one whatever its buffer takes.
            time.sleep(plan["pause"])
    seen["bytes"] = plan["bytes"]
    channel.finish()
    # Until the other end has read all of it.
    while channel.read_into(memoryview(bytearray(4096))):
        pass


def receive(channel, seen):
    view = memoryview(bytearray(1 << 18))
    keep = open(plan["keep"], "wb") if plan["keep"] else None
    marks = list(plan["marks"])
    total, began = 0, None
    channel.only_receives()
    while True:
        count = channel.read_into(view)
        now = time.monotonic()
        if not count:
            break
        if began is None:
            began = last = now
        if keep:
            keep.write(view[:count])
            keep.flush()
        # The sender's pause behind the first block is no gap.
        if total <= plan["block"]:
            last = now
        total += count
        if now - last > seen["longest_gap"]:
            seen["longest_gap"] = now - last
        last = now
        while marks and total >= marks[0]:
            marks.pop(0)
            seen["marks"].append([total, now - began])
        seen["bytes"], seen["seconds"] = total, now - began
    channel.finish()


def ask(channel, seen):
    for size in plan["sizes"]:
        request, view, times = bytes(size), memoryview(bytearray(size)), []
        for _ in range(plan["rounds"]):
            start = time.monotonic()
            channel.write(request)
            place = 0
            while place < size:
                count = channel.read_into(view[place:])
                if not count:
                    raise EOFError("the answer ends early")
                place += count
            times.append(time.monotonic() - start)
        seen["delays"].append([size, times])
    channel.finish()


def answer(channel, seen):
    view = memoryview(bytearray(1 << 18))
    expected = plan["rounds"] * sum(plan["sizes"])
    while seen["bytes"] < expected and (count := channel.read_into(view)):
        channel.write(view[:count])
        seen["bytes"] += count
    channel.finish()


seen = {"bytes": 0, "seconds": 0.0, "marks": [], "longest_gap": 0.0, "delays": [], "error": None}
try:
    does = {"send": send, "receive": receive, "ask": ask, "answer": answer}[plan["role"]]
    does(Pipe() if plan["address"] is None else Socket(), seen)
except Exception as error:
    seen["error"] = f"{type(error).__name__}: {error}"
finally:
    with open(plan["report"] + ".part", "w") as file:
        json.dump(seen, file)
    os.rename(plan["report"] + ".part", plan["report"])
