"""Print the folder of the header files."""

from interposer.include import path

if __name__ == "__main__":
    print(path())
