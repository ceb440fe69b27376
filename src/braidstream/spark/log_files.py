"""How Spark writes its offset log on a local disk: without a child process for each file.

Spark writes four small files or more an epoch: offsets, commits, and what each file source has read. On a local disk
Hadoop sets the permissions of each new file, and of its checksum beside it, by running `chmod` in a process of its own,
unless its native library is there, which PySpark does not bring: eight processes and 30 ms an epoch. Spark lets one
choose the class that writes those files, by a setting of the session that a source was declared in; so sources of files
are declared anew in ours (`sources_in`), unless theirs has settings of its own: a zone, say. The class here is Spark's
own but for opening a file, which is the JVM's plain way: a name that begins with a dot, renamed when it is complete, as
before. It is Java source, compiled in the JVM by Janino, which Spark generates code with.

Invariant: what is written and how it becomes visible stay the same, the checksum beside each file included (Hadoop's
form: of every 512 bytes), by which Hadoop and `braid verify` find damage; only permissions are those of the process.
Where anything of this does not work, Spark's class is used. Cost: some milliseconds, once in a JVM; a file is in memory
until it is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["local_file_manager", "sources_in"]

_PACKAGES = ("org.apache.spark.sql.execution.streaming.checkpointing", "org.apache.spark.sql.execution.streaming")
"""Where Spark has it: 4.1 and later, and before."""
_BASE = "FileSystemBasedCheckpointFileManager"
_PACKAGE, _NAME = "io.braidstream", "PlainLocalFiles"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SOURCE = """
package {package};

public class {name} extends {base} {{
    public {name}(org.apache.hadoop.fs.Path path, org.apache.hadoop.conf.Configuration conf) {{
        super(path, conf);
    }}

    public org.apache.hadoop.fs.FSDataOutputStream createTempFile(org.apache.hadoop.fs.Path path) {{
        try {{
            return new org.apache.hadoop.fs.FSDataOutputStream(new Summed(path.toUri().getPath()), null);
        }} catch (java.io.IOException error) {{
            return super.createTempFile(path);
        }}
    }}

    static class Summed extends java.io.ByteArrayOutputStream {{
        private final java.io.OutputStream file;
        private final java.io.File sums;
        private boolean isClosed = false;

        Summed(String path) throws java.io.IOException {{
            java.io.File plain = new java.io.File(path);
            file = new java.io.FileOutputStream(plain);
            sums = new java.io.File(plain.getParentFile(), "." + plain.getName() + ".crc");
        }}

        public void close() throws java.io.IOException {{
            if (isClosed) {{
                return;
            }}
            isClosed = true;
            file.write(buf, 0, count);
            file.close();
            java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
            java.io.DataOutputStream told = new java.io.DataOutputStream(bytes);
            told.writeBytes("crc");
            told.writeByte(0);
            told.writeInt(512);
            for (int i = 0; i < count; i += 512) {{
                java.util.zip.CRC32 sum = new java.util.zip.CRC32();
                sum.update(buf, i, Math.min(512, count - i));
                told.writeInt((int) sum.getValue());
            }}
            java.io.OutputStream beside = new java.io.FileOutputStream(sums);
            beside.write(bytes.toByteArray());
            beside.close();
        }}
    }}
}}
"""


def local_file_manager(spark: SparkSession) -> str | None:
    """The class by which Spark is to write its log on a local disk; None where it has no choice of classes."""
    jvm: Any = spark.sparkContext._jvm
    base = next((name for package in _PACKAGES if _class_of(jvm, name := f"{package}.{_BASE}") is not None), None)
    if base is None:
        return None
    own = f"{_PACKAGE}.{_NAME}"
    if _class_of(jvm, own) is None:
        try:
            _define(spark, base, own)
        except Exception:  # another Janino, another JVM: Spark's class does it too, only slower
            return base
    return own if _class_of(jvm, own) is not None else base


def sources_in(plan: Any, session: SparkSession, ours: Collection[str] = ()) -> Any:
    """An analyzed plan whose sources of files are declared in a session; as it is where Spark has other classes.

    Only those of sessions that have its settings, but for `ours`: of others what is read might be read otherwise.
    """
    try:
        return _with_sources_in(plan, session, [_MANAGER, *ours])
    except Exception:  # Spark's internals are not promised: the sources' log is written by child processes then
        return plan


def _with_sources_in(plan: Any, session: SparkSession, ours: Sequence[str]) -> Any:
    if str(plan.getClass().getSimpleName()) != "StreamingRelation":
        children = plan.children()
        if not children.size():
            return plan
        made = [_with_sources_in(children.apply(i), session, ours) for i in range(children.size())]
        return plan.withNewChildren(session._jvm.PythonUtils.toSeq(made))
    source = plan.dataSource()
    own = session._jsparkSession
    is_of_files = str(source.sourceInfo().name()).startswith("FileSource[")
    if not is_of_files or not _are_alike(source.sparkSession(), own, ours):
        return plan
    known = {  # its schema as well: a source without one would look at the files anew, and these have changed
        "sparkSession": own,
        "userSpecifiedSchema": session._jvm.scala.Some(source.sourceInfo().schema()),
        "partitionColumns": source.sourceInfo().partitionColumns(),
    }
    gateway, objects = session.sparkContext._gateway, session._jvm.java.lang.Object
    assert gateway is not None
    fields = gateway.new_array(objects, source.productArity())
    for i in range(source.productArity()):
        fields[i] = known.pop(str(source.productElementName(i)), None) or source.productElement(i)
    if known:
        return plan
    declared = source.getClass().getConstructors()[0].newInstance(fields)
    parts = gateway.new_array(objects, plan.productArity())
    for i in range(plan.productArity()):
        parts[i] = declared if i == 0 else plan.productElement(i)
    return plan.makeCopy(parts)


def _are_alike(one: Any, other: Any, but: Sequence[str]) -> bool:
    """Whether two sessions of the JVM have the same settings."""
    first, second = (session.sessionState().conf().getAllConfs() for session in (one, other))
    for name in but:
        first, second = first.removed(name), second.removed(name)
    return bool(first.equals(second))


def _class_of(jvm: Any, name: str) -> Any:
    """A class that the JVM knows by name; None where there is none."""
    try:
        return jvm.java.lang.Class.forName(name)
    except Exception:
        return None


def _define(spark: SparkSession, base: str, name: str) -> None:
    """Compile the class, and make it known beside the one that it extends."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    loader = jvm.java.lang.Class.forName(base).getClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.format(package=_PACKAGE, name=_NAME, base=base))
    lang = jvm.java.lang
    kinds = gateway.new_array(lang.Class, 4)
    kinds[0], kinds[1] = lang.Class.forName("java.lang.String"), lang.Class.forName("[B")
    kinds[2] = kinds[3] = lang.Integer.TYPE
    define = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", kinds)
    define.setAccessible(True)
    for one, code in dict(compiler.getBytecodes()).items():
        given = gateway.new_array(lang.Object, 4)
        given[0], given[1], given[2], given[3] = one, code, 0, len(code)
        define.invoke(loader, given)
